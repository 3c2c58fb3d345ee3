"""Filters of a search by label, id and attributes."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from keras_gsp._labels import as_host_array, composed
from keras_gsp.retrieval.index.columns import BLOCK, Texts, blocks_of

Where = Mapping[str, Any]
# What Milvus's filters read in a string.
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def as_list(values: Any, name: str = "ids") -> list[Any]:
    """Returns one value or several as a list."""
    if isinstance(values, str | bytes | os.PathLike):
        return [values]
    if isinstance(values, list | tuple | Set | range):
        return list(values)
    array = np.atleast_1d(as_host_array(values, name))
    return (array[:, 0] if array.shape[1:] == (1,) else array).tolist()


def is_selected(
    where: Where | None, columns: Mapping[str, np.ndarray | Texts]
) -> np.ndarray | None:
    """Returns which items pass, (items,) booleans; `None` without a filter."""
    if where is None or where == {}:
        return None
    dtypes = {
        name: np.dtype("U" if column.dtype == object else column.dtype)
        for name, column in columns.items()
    }
    passed = np.ones(len(columns["id"]), bool)
    for name, test, value in _conditions(where, dtypes):
        column = columns[name]
        if test == "in":
            passed &= (
                column.is_one_of(set(value))
                if isinstance(column, Texts)
                else np.isin(column, np.array(value, column.dtype))
            )
        else:
            rows = np.flatnonzero(passed)
            for some in blocks_of(rows, BLOCK):
                values = column[some]
                passed[some] = (
                    values >= value if test == ">=" else values < value
                )
    return passed


def milvus_expression(
    where: Where | None, dtypes: Mapping[str, np.dtype]
) -> str:
    """Returns a filter as an expression of Milvus, `""` without a filter."""
    if where is None:
        return ""
    terms = [
        f"{name} {test} {_written(value)}"
        for name, test, value in _conditions(where, dtypes)
    ]
    return " and ".join(terms)


def check_columns(names: Any, known: Mapping[str, Any], argument: str) -> None:
    """Raises unless a gallery has these columns."""
    unknown = sorted(set(map(str, names)) - set(known))
    if unknown:
        raise ValueError(
            f"`{argument}` must name columns of the gallery, {sorted(known)}. "
            f"Received: {unknown}."
        )


def _written(value):
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str):
        text = "".join(ESCAPES.get(letter, letter) for letter in value)
        return f'"{text}"'
    return json.dumps(value)


def _conditions(
    where: Where, dtypes: Mapping[str, np.dtype]
) -> Iterator[tuple[str, str, Any]]:
    """Yields name, "in" or ">=" or "<", and values that the column can hold."""
    if not isinstance(where, Mapping):
        raise TypeError(
            '`where` must be a dict such as {"year": slice(2020, None)}. '
            f"Received: where={where!r}."
        )
    check_columns(where, dtypes, "where")
    for name, condition in where.items():
        dtype = dtypes[name]
        if isinstance(condition, slice):
            if condition.step is not None:
                raise ValueError(
                    "A slice in `where` must have no step. "
                    f"Received: {name}={condition}."
                )
            for test, end in ((">=", condition.start), ("<", condition.stop)):
                if end is not None:
                    yield name, *_bound(test, _checked(name, end, dtype), dtype)
            continue
        given = as_list(condition, "where")
        values = [_checked(name, one, dtype) for one in given]
        if dtype.kind == "i":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            values = [one for one in values if low <= one <= high]
            values = [int(one) for one in values if one == int(one)]
        elif dtype.kind == "f":
            values = [one for one in values if float(one) == one]
        yield name, "in", values


def _bound(test, end, dtype):
    """Column >= end or column < end, exact for integers of any size."""
    if dtype.kind != "i":
        return test, end
    end, limits = math.ceil(end), np.iinfo(dtype)
    if end <= limits.max:
        return test, max(end, int(limits.min))
    # Beyond the last integer: nothing is above it, everything is below it.
    return ("in", []) if test == ">=" else (">=", int(limits.min))


def _checked(name, value, dtype):
    if not isinstance(value, bool | int | float | str):
        value = as_host_array(value, "where")
        value = value.item() if value.size == 1 else value
    if dtype.kind == "U":
        if isinstance(value, str):
            return composed(value)
    elif isinstance(value, bool | int | float):
        if not math.isfinite(value):
            raise ValueError(
                f"`where` must compare {name!r} with finite numbers. "
                f"Received: {value!r}; slice(2, None) has no end."
            )
        return value if isinstance(value, float) else int(value)
    kind = "strings" if dtype.kind == "U" else "numbers"
    raise TypeError(
        f"`where` must compare {name!r} with {kind}. Received: {value!r}."
    )
