"""Ranges of numeric arguments, checked where a layer or loss is made."""

import math
import numbers
from typing import Any


def check_positive(**arguments: Any) -> None:
    """Raises `ValueError` for an argument that is not above 0."""
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(
                f"`{name}` must be above 0. Received: {name}={value}."
            )


def check_positive_finite(**arguments: Any) -> None:
    """Raises `ValueError` for an argument that is not in (0, infinity)."""
    for name, value in arguments.items():
        if not 0 < value < math.inf:
            raise ValueError(
                f"`{name}` must be positive and finite. "
                f"Received: {name}={value}."
            )


def check_not_negative(**arguments: Any) -> None:
    """Raises `ValueError` for an argument that is below 0, or NaN."""
    for name, value in arguments.items():
        if not value >= 0:
            raise ValueError(
                f"`{name}` must be at least 0. Received: {name}={value}."
            )


def is_integer(value: Any, *, least: int | None = None) -> bool:
    """Whether a value is an integer and not too small.

    The one place where integers are told from others: `True` and 2.0 are
    none, those of NumPy are.

    Args:
        value: anything.
        least: the smallest one allowed, or `None` for any.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        return False
    return least is None or int(value) >= least


def check_integer(
    *, least: int | None = None, is_optional: bool = False, **arguments: Any
) -> None:
    """Raises `ValueError` for what is not an integer, or is too small.

    Args:
        least: the smallest one allowed, or `None` for any.
        is_optional: whether `None` passes too.
        **arguments: by name, the values to check.
    """
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
    """Raises `ValueError` for what is not an integer of at least 1.

    Args:
        is_optional: whether `None` passes too.
        **arguments: by name, the values to check.
    """
    check_integer(least=1, is_optional=is_optional, **arguments)


def check_seed(seed: int | None) -> int | None:
    """Raises `TypeError` unless given an int or `None`."""
    if seed is not None and not isinstance(seed, int):
        raise TypeError(
            f"`seed` must be an int or None. Received: seed={seed!r}. To "
            "draw from a `SeedGenerator`, pass "
            "`first_half=class_disjoint_halves(labels, generator)`."
        )
    return seed
