"""Rows for arguments out of their range."""

import inspect
import re

from keras_gsp._configured import arguments_of


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


def every_argument(room, others, free=()):
    """A row for each number and each word that a class of a room takes.

    Not for those in `free`. No number may be negative, no word any word.
    """
    for name in room.__all__:
        kind, needed = getattr(room, name), others.get(name, {})
        if not inspect.isclass(kind):
            continue
        made = kind(**needed)
        for argument in dict.fromkeys(arguments_of(kind)):
            value = getattr(made, argument)
            wrong = {int: -2, float: -2, str: "wrong"}.get(type(value))
            if wrong is not None and argument not in free:
                yield from out_of_range(kind, {argument: [wrong]}, **needed)


def rows(call, *cases):
    """A row for each case, (arguments, message)."""
    return [(call, *case) for case in cases]
