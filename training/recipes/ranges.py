"""Which words and numbers a field may hold, said on the field itself.

`Annotated[float, positive]` is a number with its range, `Literal["a", "b"]`
one of some words. `check_fields` holds a record to what its fields say.
"""

import math
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True, kw_only=True)
class Range:
    """The numbers that a field may hold; None leaves a side open."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            math.isfinite(number)
            and (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        if self.below is not None:
            return f"in ({self.above:g}, {self.below:g})"
        if self.at_most is not None:
            lower = f"({self.above:g}" if self.at_least is None else None
            return f"in {lower or f'[{self.at_least:g}'}, {self.at_most:g}]"
        if self.at_least is not None:
            return f"{self.at_least:g} or more"
        return "positive" if self.above == 0 else f"above {self.above:g}"


def at_least(number: float) -> Range:
    """Numbers from `number` on."""
    return Range(at_least=number)


positive = Range(above=0)
not_negative = Range(at_least=0)
up_to_one = Range(above=0, at_most=1)
share = Range(at_least=0, at_most=1)


@dataclass(frozen=True)
class OpenWord:
    """A word of which only the start is known, beside those of a `Literal`.

    Attributes:
        start: ends in a colon; what comes behind it is free.
    """

    start: str


def check_fields(record: Any) -> None:
    """Holds every field of a record to its own type.

    Args:
        record: Instance of a dataclass with words (`Literal`), ranged
            numbers, flags, texts and paths.

    Raises:
        ValueError: a word, a number or a kind of value that the field may
            not hold. Truth values are no numbers, and 2.5 is no integer.
    """
    record_type: Any = type(record)
    rules = field_rules(record_type)
    for field, (kinds, words, numbers) in rules.items():
        value = getattr(record, field)
        if value is None and NoneType in kinds:
            continue
        if words:
            is_word = isinstance(value, str) and _is_word(value, words)
            require(record, field, is_word, f"one of {', '.join(words)}")
        elif float in kinds or int in kinds:
            _check_number(record, field, value, kinds, numbers)
        else:
            kind = next(kind for kind in kinds if kind is not NoneType)
            name = {str: "a text", bool: "True or False"}.get(kind, str(kind))
            require(record, field, isinstance(value, kind), name)


def require(record: Any, field: str, is_met: bool, expectation: str) -> None:
    """Raises `ValueError` about a field of a record unless `is_met`."""
    if not is_met:
        raise ValueError(
            f"`{field}` must be {expectation}. "
            f"Received: {field}={getattr(record, field)}."
        )


@cache
def field_rules(kind: type) -> dict[str, tuple[set, tuple, Range | None]]:
    """For each field of a dataclass its types, words and range."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: _rule(hints[field.name])
        for field in fields(kind)
        if field.init
    }


def _rule(annotation):
    metadata = getattr(annotation, "__metadata__", ())
    ranges = [extra for extra in metadata if isinstance(extra, Range)]
    plain = annotation.__origin__ if metadata else annotation
    words = literal_words(plain) + tuple(
        extra.start for extra in metadata if isinstance(extra, OpenWord)
    )
    return _kinds(plain), words, ranges[0] if ranges else None


def _is_word(value, words):
    for word in words:
        is_open = word.endswith(":")
        if value == word and not is_open:
            return True
        if is_open and value != word and value.startswith(word):
            return True
    return False


def _kinds(annotation):
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return {str}
    if get_origin(annotation) is tuple:
        return {tuple}
    if not parts:
        return {annotation}
    return set().union(*map(_kinds, parts))


def literal_words(annotation: Any) -> tuple[str, ...]:
    """The words of a `Literal`, or of a union of them; else none."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(
        word for part in get_args(annotation) for word in literal_words(part)
    )


def _check_number(record, field, value, kinds, numbers):
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if float not in kinds:
        is_integer = is_number and isinstance(value, int)
        require(record, field, is_integer, f"an integer, {numbers}")
    require(record, field, is_number and value in numbers, str(numbers))
