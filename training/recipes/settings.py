"""Ranges, words and named arguments: what a command's options accept."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

Dataset = Literal[
    "glyphs", "collage", "cub", "cars", "sop", "inshop", "folder", "csv"
]


@dataclass(frozen=True)
class Range:
    """Finite numbers that a field accepts, with their description."""

    text: str
    accepts: Callable[[float], bool]

    def __contains__(self, number: Any) -> bool:
        is_number = isinstance(number, int | float) and type(number) is not bool
        return is_number and math.isfinite(number) and self.accepts(number)


positive = Range("positive", lambda number: number > 0)
not_negative = Range("0 or more", lambda number: number >= 0)
up_to_one = Range("in (0, 1]", lambda number: 0 < number <= 1)
share = Range("in [0, 1]", lambda number: 0 <= number <= 1)
_hints = cache(partial(get_type_hints, include_extras=True))


def check_fields(record: Any) -> None:
    """Checks the words and the ranges of a dataclass's fields.

    `Annotated[float, positive]` is a number with its range, `Literal["a",
    "b"]` one of some words; None stands for itself.
    """
    record_type: Any = type(record)
    for name, hint in _hints(record_type).items():
        value, parts = getattr(record, name), get_args(hint)
        if value is None:
            continue
        if get_origin(parts[0] if parts else None) is Literal:
            parts = get_args(parts[0])
            words = value if isinstance(value, tuple) else (value,)
            is_met = {*words} <= {*parts}
            require(record, name, is_met, f"one of {', '.join(parts)}")
        elif get_origin(hint) is Literal:
            require(record, name, value in parts, f"one of {', '.join(parts)}")
        for part in parts:
            if isinstance(part, Range):
                require(record, name, value in part, part.text)


def require(record: Any, name: str, is_met: bool, expectation: str) -> None:
    """Raises `ValueError` about a field of a record unless `is_met`."""
    if not is_met:
        raise ValueError(
            f"`{name}` must be {expectation}. "
            f"Received: {name}={getattr(record, name)}."
        )


def _parsed(texts):
    """The dictionary of texts like `beta=20`."""
    arguments = {}
    for name, equals, text in (text.partition("=") for text in texts):
        if not equals:
            raise ValueError(f"must be like beta=20. Received: {name}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return arguments


# Arguments of a class by name; on the command line `beta=20 alpha=2`.
Arguments = Annotated[
    dict[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME=VALUE",
        instance_from_str=_parsed,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda arguments: [
            f"{name}={json.dumps(value)}" for name, value in arguments.items()
        ],
    ),
]
