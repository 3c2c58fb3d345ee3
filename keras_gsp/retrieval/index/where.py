"""Filters of a search by label, id and attributes: `SearchIndex.search`."""

import json
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

Where = Mapping[str, Any]


def is_selected(
    where: Where | None, columns: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Returns which items pass, (items,) booleans; `None` without a filter."""
    if not where:
        return None
    _check_columns(where, columns)
    passed = [_passed(n, columns[n], wanted) for n, wanted in where.items()]
    return np.logical_and.reduce(passed)


def milvus_expression(where: Where | None, is_text: Mapping[str, bool]) -> str:
    """Returns a filter as an expression of Milvus, `""` without a filter.

    `is_text` says by name whether a column holds strings.
    """
    if not where:
        return ""
    _check_columns(where, is_text)
    terms = []
    for name, condition in where.items():
        if isinstance(condition, slice):
            low, high = _ends(name, condition, is_text[name])
            terms += [f"{name} >= {_literal(low)}"] if low is not None else []
            terms += [f"{name} < {_literal(high)}"] if high is not None else []
            continue
        values = _checked_values(name, condition, is_text[name])
        terms.append(f"{name} in [{', '.join(map(_literal, values))}]")
    return " and ".join(terms)


def _check_columns(where: Where, known: Mapping[str, Any]) -> None:
    unknown = sorted(set(where) - set(known))
    if unknown:
        raise ValueError(
            f"`where` must name columns of the gallery, {sorted(known)}. "
            f"Received: {unknown}."
        )


def _checked_values(name: str, condition: Any, is_text: bool) -> list[Any]:
    """A value or a collection as a list of Python's own values."""
    if isinstance(condition, Set):
        condition = list(condition)
    is_one = isinstance(condition, str | bytes) or np.ndim(condition) == 0
    values = [condition] if is_one else list(condition)
    return [_plain(name, value, is_text) for value in values]


def _passed(name, column, condition):
    is_text = column.dtype.kind == "U"
    if not isinstance(condition, slice):
        values = _checked_values(name, condition, is_text)
        if not values:
            return np.zeros(len(column), bool)
        return np.isin(column, np.array(values))
    passed = np.ones(len(column), bool)
    low, high = _ends(name, condition, is_text)
    if low is not None:
        passed &= column >= low
    if high is not None:
        passed &= column < high
    return passed


def _ends(name, condition, is_text):
    if condition.step is not None:
        raise ValueError(
            "A slice in `where` must have no step. "
            f"Received: {name}={condition}."
        )
    ends = condition.start, condition.stop
    return [e if e is None else _plain(name, e, is_text) for e in ends]


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


def _literal(value):
    if isinstance(value, bool):
        return str(value).lower()
    # Milvus has the escapes of JSON.
    return json.dumps(value, ensure_ascii=False)
