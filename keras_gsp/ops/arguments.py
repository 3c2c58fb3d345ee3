"""Ranges of numeric arguments, checked where a layer or loss is made."""

import numbers
from typing import Any


def check_positive(**arguments: Any) -> None:
    """Raises `ValueError` for an argument that is not above 0."""
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(
                f"`{name}` must be above 0. Received: {name}={value}."
            )


def check_not_negative(**arguments: Any) -> None:
    """Raises `ValueError` for an argument that is below 0, or NaN."""
    for name, value in arguments.items():
        if not value >= 0:
            raise ValueError(
                f"`{name}` must be at least 0. Received: {name}={value}."
            )


def check_integer(
    *, least: int | None = None, is_optional: bool = False, **arguments: Any
) -> None:
    """Raises `ValueError` for what is not an integer, or is too small.

    The one place where integers are checked: `True` and 2.0 are none, those
    of NumPy are.

    Args:
        least: the smallest one allowed, or `None` for any.
        is_optional: whether `None` passes too.
        **arguments: by name, the values to check.
    """
    bound = "" if least is None else f" of at least {least}"
    for name, value in arguments.items():
        if is_optional and value is None:
            continue
        is_integer = isinstance(value, numbers.Integral)
        if (
            not is_integer
            or isinstance(value, bool)
            or (least is not None and value < least)
        ):
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
