"""Filters of a search by label, id and attributes: `SearchIndex.search`."""

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

Where = Mapping[str, Any]


def as_list(values: Any) -> list[Any]:
    """Returns one value or several as a list."""
    if isinstance(values, Set):
        return list(values)
    is_one = isinstance(values, str | bytes) or np.ndim(values) == 0
    return [values] if is_one else list(values)


def is_selected(
    where: Where | None, columns: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Returns which items pass, (items,) booleans; `None` without a filter."""
    if not where:
        return None
    is_text = {name: one.dtype.kind == "U" for name, one in columns.items()}
    passed = np.ones(len(columns["id"]), bool)
    for name, test, value in _conditions(where, is_text):
        column = columns[name]
        if test == "in":
            passed &= np.isin(column, value) if value else False
        else:
            passed &= column >= value if test == ">=" else column < value
    return passed


def milvus_expression(where: Where | None, is_text: Mapping[str, bool]) -> str:
    """Returns a filter as an expression of Milvus, `""` without a filter.

    `is_text` says by name whether a column holds strings.
    """
    # Milvus has the lists, booleans and escapes of JSON.
    terms = [
        f"{name} {test} {json.dumps(value, ensure_ascii=False)}"
        for name, test, value in _conditions(where or {}, is_text)
    ]
    return " and ".join(terms)


def _conditions(
    where: Where, is_text: Mapping[str, bool]
) -> Iterator[tuple[str, str, Any]]:
    """Yields name, "in" or ">=" or "<", and Python's own values."""
    unknown = sorted(set(where) - set(is_text))
    if unknown:
        raise ValueError(
            f"`where` must name columns of the gallery, {sorted(is_text)}. "
            f"Received: {unknown}."
        )
    for name, condition in where.items():
        if isinstance(condition, slice):
            if condition.step is not None:
                raise ValueError(
                    "A slice in `where` must have no step. "
                    f"Received: {name}={condition}."
                )
            for test, end in ((">=", condition.start), ("<", condition.stop)):
                if end is not None:
                    yield name, test, _plain(name, end, is_text[name])
            continue
        values = [
            _plain(name, one, is_text[name]) for one in as_list(condition)
        ]
        yield name, "in", values


def _plain(name, value, is_text):
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, str if is_text else bool | int | float):
        kind = "strings" if is_text else "numbers"
        raise TypeError(
            f"`where` must compare {name!r} with {kind}. Received: {value!r}."
        )
    return value
