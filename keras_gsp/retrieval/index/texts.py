"""Strings of a gallery's column, without a Python object for each."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from keras_gsp.retrieval.index.columns import Rows, blocks_of

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
