"""Ranges of numeric arguments, checked where a layer or loss is made."""

import numbers


def check_positive(**arguments):
    """Raises `ValueError` for an argument that is not above 0."""
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(
                f"`{name}` must be above 0. Received: {name}={value}."
            )


def check_not_negative(**arguments):
    """Raises `ValueError` for an argument that is below 0, or NaN."""
    for name, value in arguments.items():
        if not value >= 0:
            raise ValueError(
                f"`{name}` must be at least 0. Received: {name}={value}."
            )


def check_count(*, is_optional=False, **arguments):
    """Raises `ValueError` for what is not an integer of at least 1.

    Args:
        is_optional: whether `None` passes too.
        **arguments: by name, the values to check.
    """
    for name, value in arguments.items():
        if is_optional and value is None:
            continue
        is_integer = isinstance(value, numbers.Integral)
        if not is_integer or isinstance(value, bool) or value < 1:
            raise ValueError(
                f"`{name}` must be an integer of at least 1. "
                f"Received: {name}={value!r}."
            )
