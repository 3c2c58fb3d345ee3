"""Columns of a gallery: int64, float64 or strings, copied, exact.

Strings are Python's, in arrays of objects: a NumPy string array would be as
wide as the longest one everywhere.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from keras_gsp._embeddings import checked_embeddings
from keras_gsp._labels import checked_values, composed

RESERVED = {"id", "label", "embedding", "embeddings", "distance"}
INT64 = np.iinfo("int64")
# Floats up to here are the integers that they stand for, and the reverse.
LARGEST_WHOLE = 2**53
# Strings become NumPy's where this adds at most so much, or takes this little.
MOST_WIDENED, LEAST_WIDE = 8, 2**22
# Squared distances of larger coordinates leave float32.
LARGEST_COORDINATE = 1e17


class Rows:
    """Values at the start of an array that may grow; they never change.

    `appended` writes behind them if there is room that nobody has taken, else
    into an array twice as large: constant time for each value in the long run.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        # The array, and how many of its entries are taken.
        self._room: list[Any] = [values, len(values)]
        values.flags.writeable = False

    def __len__(self) -> int:
        return len(self.values)

    def appended(self, values: np.ndarray) -> "Rows":
        """Returns these values and more of the same type."""
        if not len(values):
            return self
        (array, taken), start = self._room, len(self)
        end = start + len(values)
        grown = Rows.__new__(Rows)
        if taken == start and end <= len(array):
            grown._room = self._room
        else:
            array = np.empty(
                (max(end, 2 * start), *values.shape[1:]), values.dtype
            )
            array[:start] = self.values
            grown._room = [array, end]
        array[start:end] = values
        grown._room[1] = end
        grown.values = array[:end]
        grown.values.flags.writeable = False
        return grown

    def only(self, is_left: np.ndarray) -> "Rows":
        """Returns the values of a mask."""
        return Rows(self.values[is_left])


def as_rows(rows: Any, name: str) -> np.ndarray:
    """Returns embeddings of any library as an array of real numbers."""
    _refuse_masked(rows, name)
    if hasattr(rows, "detach"):  # of PyTorch: on a device, in bfloat16
        rows = rows.detach().cpu().float()
    try:
        rows = np.asarray(rows)
    except ValueError as error:
        message = f"`{name}` must be an array. Received: {error}"
        raise ValueError(message) from error
    # bfloat16 has a kind of its own; text and complex numbers would be cast.
    is_half = rows.dtype.kind == "V" and rows.dtype.fields is None
    if rows.dtype.kind not in "biuf" and not is_half:
        raise TypeError(
            f"`{name}` must be real numbers. Received: dtype {rows.dtype}."
        )
    return rows


def checked_rows(rows: Any, name: str) -> np.ndarray:
    """Returns a copy of embeddings (items, size) in float32, none too large."""
    with np.errstate(over="ignore"):
        rows = checked_embeddings(as_rows(rows, name).astype("float32"), name)
    largest = max(rows.max(), -rows.min())
    if largest > LARGEST_COORDINATE:
        raise ValueError(
            f"`{name}` must be within {LARGEST_COORDINATE:g}, so that squared "
            f"distances are finite. Received: {largest:g}."
        )
    return rows


def checked_column(values: Any, count: int, name: str) -> np.ndarray:
    """Returns one number or string for each item, (count,), as a copy."""
    _refuse_masked(values, name)
    texts: Any = values if isinstance(values, list | tuple) else ()
    if str(getattr(values, "dtype", "")).startswith(("object", "str", "Str")):
        texts = values.tolist() if np.ndim(values) == 1 else ()
    if not texts or not all(isinstance(x, str | os.PathLike) for x in texts):
        column = checked_values(values, count, name)
        texts = column.tolist() if column.dtype.kind == "U" else None
    elif len(texts) != count:
        raise ValueError(
            f"`{name}` must have one entry for each item, ({count},). "
            f"Received: shape ({len(texts)},)."
        )
    if texts is not None:
        texts = [composed(os.fspath(text)) for text in texts]
        if any(text.endswith("\0") for text in texts):
            raise ValueError(  # NumPy drops it.
                f"`{name}` must not end with a NUL character. Received: one."
            )
        known: dict[str, str] = {}  # Equal strings are kept once.
        column = np.empty(count, object)
        column[:] = [known.setdefault(text, text) for text in texts]
        return column
    if column.dtype.kind == "f":
        return column.astype("float64")
    low, high = int(column.min()), int(column.max())
    if low < INT64.min or high > INT64.max:
        raise TypeError(
            f"`{name}` must be integers that int64 holds; larger ones may be "
            f"strings. Received: from {low} to {high}."
        )
    return column.astype("int64")


def as_numpy(values: np.ndarray) -> np.ndarray:
    """Returns strings as NumPy's, if a long one does not widen many."""
    if values.dtype != object:
        return values
    lengths = [len(text) for text in values.flat]
    width, total = max(lengths, default=0), sum(lengths)
    if width * len(lengths) > max(MOST_WIDENED * total, LEAST_WIDE):
        return values
    return values.astype("U")


def checked_ids(ids: Any, count: int) -> np.ndarray:
    """Returns ids as integers or strings; whole floats are integers."""
    ids = checked_column(ids, count, "ids")
    return ids if ids.dtype == object else _cast("id", ids, np.dtype("int64"))


def ids_of_kind(ids: list[Any], dtype: np.dtype) -> np.ndarray:
    """Returns checked ids; `TypeError` unless they are as a gallery's."""
    checked = checked_ids(ids, len(ids))
    check_kind("id", checked, dtype)
    return checked


def plain_ids(ids: list[Any], dtype: np.dtype) -> list[Any]:
    """Returns ids of a kind as Python's numbers or strings; `None` stays."""
    given = [one for one in ids if one is not None]
    plain = iter(ids_of_kind(given, dtype).tolist() if given else ())
    return [one if one is None else next(plain) for one in ids]


def checked_items(
    embeddings: Any, labels: Any, ids: Any, attributes: Any
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns embeddings in float32, and ids, labels and attributes by name."""
    embeddings = checked_rows(embeddings, "embeddings")
    count = len(embeddings)
    attributes = {} if attributes is None else attributes
    if not hasattr(attributes, "items"):  # A table has it, too.
        raise TypeError(
            "`attributes` must be a dict from names to arrays. "
            f"Received: {type(attributes).__name__}."
        )
    for name in attributes:
        if not str(name).isidentifier() or name in RESERVED:
            raise ValueError(
                "Names of `attributes` must be words that are not one of "
                f"{sorted(RESERVED)}. Received: {name!r}."
            )
    ids = checked_ids(ids, count)
    if len(set(ids.tolist())) < count:
        values, counts = np.unique(ids, return_counts=True)
        refuse_repeated(values[counts > 1].tolist())
    labels = [""] * count if labels is None else labels
    columns = {"id": ids, "label": checked_column(labels, count, "labels")}
    for name, values in attributes.items():
        columns[str(name)] = checked_column(values, count, name)
    return embeddings, columns


def fitted(
    embeddings: np.ndarray,
    columns: Mapping[str, np.ndarray],
    size: int | None,
    dtypes: Mapping[str, np.dtype],
) -> dict[str, np.ndarray]:
    """Returns columns with the `dtypes` of a gallery; raises if unlike it."""
    if embeddings.shape[1] != size:
        raise ValueError(
            "`embeddings` must have the size of the gallery. Received: "
            f"{embeddings.shape[1]}, the gallery has {size}."
        )
    if set(columns) != set(dtypes):
        raise ValueError(
            "`attributes` must be those of the gallery, "
            f"{sorted(set(dtypes) - RESERVED)}. "
            f"Received: {sorted(set(columns) - RESERVED)}."
        )
    return {
        name: _cast(name, values, dtypes[name])
        for name, values in columns.items()
    }


def _cast(name, values, dtype):
    """Values of a column in its dtype, exactly or not at all."""
    check_kind(name, values, dtype)
    if values.dtype == object or values.dtype == dtype:
        return values
    with np.errstate(invalid="ignore"):
        cast = values.astype(dtype)
        is_same = cast.astype(values.dtype) == values
        is_same &= np.abs(values) <= LARGEST_WHOLE
    if not is_same.all():
        raise TypeError(
            f"`{shown(name)}` must be numbers that {dtype} holds exactly, as "
            f"{values.dtype} up to 2**53. Received: {values[~is_same][0]}."
        )
    return cast


def check_kind(name: str, values: np.ndarray, dtype: np.dtype) -> None:
    """Raises `TypeError` for strings among numbers, or the reverse."""
    is_text = values.dtype.kind in "OU"
    if is_text != (dtype.kind in "OU"):
        types = "numbers", "strings"
        needed, received = types if is_text else types[::-1]
        raise TypeError(
            f"`{shown(name)}` must be {needed}, as in the gallery. "
            f"Received: {received}."
        )


def shown(name: str) -> str:
    """The argument that a column comes from."""
    return {"id": "ids", "label": "labels"}.get(name, name)


def refuse_repeated(ids: list[Any]) -> None:
    """Raises if there are any."""
    if ids:
        raise ValueError(
            "`ids` must all be different. Received: "
            f"{len(ids)} of them twice, for example {ids[0]!r}."
        )


def _refuse_masked(values, name):
    if np.ma.is_masked(values):
        raise ValueError(
            f"`{name}` must not have masked entries. Received: "
            f"{np.ma.count_masked(values)} of them."
        )


def blocks_of(ids: Any, size: int = 4096) -> list[Any]:
    """Cuts ids into blocks of that many, the last one shorter."""
    size = max(size, 1)
    return [ids[start : start + size] for start in range(0, len(ids), size)]


# Names of files that are no UTF-8 have surrogates.
ENCODING = "utf-8", "surrogatepass"
# Strings that are hashed, or made, at once.
BLOCK = 2**16


class Texts:
    """Strings as one array of bytes, and where each ends; never changed.

    Both arrays may be memory-mapped. An index (of integers, a slice or a mask)
    makes strings, an array of objects.
    """

    dtype = np.dtype(object)

    def __init__(
        self, content: Rows, ends: Rows, hashes: Rows | None = None
    ) -> None:
        self._content, self._ends, self._hashes = content, ends, hashes

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Texts":
        """Returns the column of some strings."""
        encoded = [text.encode(*ENCODING) for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype="int64")
        content = np.frombuffer(b"".join(encoded), "uint8")
        return cls(Rows(content), Rows(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, selection: Any) -> Any:
        if isinstance(selection, slice):
            selection = np.arange(*selection.indices(len(self)))
        positions = np.asarray(selection)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        positions = np.where(positions < 0, positions + len(self), positions)
        starts = np.where(positions > 0, self.ends[positions - 1], 0)
        content = self.content.data
        texts = np.empty(positions.size, object)
        texts[:] = [
            str(content[start:end], *ENCODING)
            for start, end in zip(
                starts.flat, self.ends[positions].flat, strict=True
            )
        ]
        return texts.reshape(positions.shape)[()]

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self[:]

    def tolist(self) -> list[str]:
        """Returns all strings."""
        return self[:].tolist()

    @property
    def content(self) -> np.ndarray:
        """UTF-8 of all strings, uint8."""
        return self._content.values

    @property
    def ends(self) -> np.ndarray:
        """Where each string ends in `content`, int64."""
        return self._ends.values

    @property
    def hashes(self) -> np.ndarray:
        """An integer of each string, uint64; different ones may share it."""
        if self._hashes is None:
            self._hashes = Rows(_hashes(self.content, self.ends))
        return self._hashes.values

    @property
    def values(self) -> "Texts":
        """The column itself, as `Rows.values`."""
        return self

    def appended(self, texts: Iterable[str]) -> "Texts":
        """Returns these strings and more."""
        more, hashes = Texts.of(texts), self._hashes or Rows(self.hashes)
        return Texts(
            self._content.appended(more.content),
            self._ends.appended(more.ends + len(self.content)),
            hashes.appended(more.hashes),
        )

    def only(self, is_left: np.ndarray) -> "Texts":
        """Returns the strings of a mask."""
        lengths = np.diff(self.ends, prepend=0)
        content = self.content[np.repeat(is_left, lengths)]
        ends = np.cumsum(lengths[is_left])
        return Texts(Rows(content), Rows(ends), Rows(self.hashes[is_left]))

    def is_one_of(self, chosen: Collection[str]) -> np.ndarray:
        """Returns which strings are among some, booleans."""
        passed = np.isin(self.hashes, Texts.of(chosen).hashes)
        for rows in blocks_of(np.flatnonzero(passed), BLOCK):
            passed[rows] = [text in chosen for text in self[rows]]
        return passed


def _hashes(content, ends):
    """Sums of the bytes, each times a number of its place in the string."""
    hashes = np.empty(len(ends), "uint64")
    lengths = np.diff(ends, prepend=0)
    factors = np.random.default_rng(0).integers(
        2**64, size=lengths.max(initial=0), dtype="uint64"
    )
    for start in range(0, len(ends), BLOCK):
        counts = lengths[start : start + BLOCK]
        before = np.cumsum(counts) - counts
        first = ends[start] - counts[0]
        values = content[first : first + counts.sum()].astype("uint64") + 1
        places = np.arange(len(values)) - np.repeat(before, counts)
        sums = np.zeros(len(values) + 1, "uint64")
        np.cumsum(values * factors[places], out=sums[1:])
        hashes[start : start + BLOCK] = sums[before + counts] - sums[before]
    return hashes
