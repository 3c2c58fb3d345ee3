"""Rows for arguments out of their range."""

import re


def out_of_range(call, refused, **others):
    """A row for each value of `refused`, argument -> values.

    The message has to name the argument and the value that was received.
    """
    return [
        (
            call,
            {**others, name: value},
            f"`{name}` must .*Received: {re.escape(f'{name}={value!r}')}",
        )
        for name, values in refused.items()
        for value in values
    ]


def rows(call, *cases):
    """A row for each case, (arguments, message)."""
    return [(call, *case) for case in cases]
