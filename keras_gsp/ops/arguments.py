"""Range checks for numeric arguments of layers, losses and functions."""

import math
import numbers
from typing import Any


def check_positive(**arguments: float) -> None:
    """Raises `ValueError` for an argument that is not in (0, infinity)."""
    for name, value in arguments.items():
        if not 0 < value < math.inf:
            raise ValueError(
                f"`{name}` must be positive and finite. "
                f"Received: {name}={value}."
            )


def check_not_negative(**arguments: float) -> None:
    """Raises `ValueError` for an argument that is below 0, or NaN."""
    for name, value in arguments.items():
        if not value >= 0:
            raise ValueError(
                f"`{name}` must be at least 0. Received: {name}={value}."
            )


def is_integer(value: Any, *, least: int | None = None) -> bool:
    """Whether a value is an integer of at least `least`; NumPy's count."""
    is_one = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_one and (least is None or int(value) >= least)


def check_integer(
    *, least: int | None = None, is_optional: bool = False, **arguments: Any
) -> None:
    """Raises `ValueError` for an argument that is no integer or too small."""
    bound = "" if least is None else f" of at least {least}"
    for name, value in arguments.items():
        if is_optional and value is None:
            continue
        if not is_integer(value, least=least):
            raise ValueError(
                f"`{name}` must be an integer{bound}. "
                f"Received: {name}={value!r}."
            )


def check_count(*, is_optional: bool = False, **arguments: Any) -> None:
    """Raises `ValueError` for an argument that is no integer of at least 1."""
    check_integer(least=1, is_optional=is_optional, **arguments)


def check_interval(interval: str, **arguments: Any) -> None:
    """Raises `ValueError` for an argument outside an interval as "(0, 1]"."""
    low, high = map(float, interval[1:-1].split(","))
    for name, value in arguments.items():
        is_end = (value == low and interval[0] == "[") or (
            value == high and interval[-1] == "]"
        )
        if not (low < value < high or is_end):
            raise ValueError(
                f"`{name}` must be in {interval}. Received: {name}={value}."
            )


def check_choice(*allowed: Any, **arguments: Any) -> None:
    """Raises `ValueError` for an argument that is none of the allowed ones."""
    words = [f'"{x}"' if isinstance(x, str) else str(x) for x in allowed]
    for name, value in arguments.items():
        if value not in allowed:
            raise ValueError(
                f"`{name}` must be {', '.join(words[:-1])} or {words[-1]}. "
                f"Received: {name}={value!r}."
            )


def check_seed(seed: int | None) -> int | None:
    """Returns `seed`, or raises `TypeError` unless it is an int or `None`."""
    if seed is not None and not isinstance(seed, int):
        raise TypeError(
            f"`seed` must be an int or None. Received: seed={seed!r}. To "
            "draw from a `SeedGenerator`, pass "
            "`first_half=class_disjoint_halves(labels, generator)`."
        )
    return seed
