"""Ranges of numeric arguments, checked where a layer or loss is made."""


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
