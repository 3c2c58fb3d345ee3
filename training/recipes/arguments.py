"""Arguments of a loss or a pooling, read from its class's signature."""

import difflib
import inspect
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, make_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from training.recipes.settings import Arguments

SIMPLE = (int, float, bool, str)


@cache
def arguments_of(
    kind: Any, prefix: str, hidden: tuple[str, ...] = ()
) -> type[Arguments]:
    """Makes the dataclass of a class's own arguments but the `hidden` ones.

    Numbers, flags and texts are arguments, also in sequences, with the
    defaults of the class; what it passes on as `**kwargs` is not. The class
    checks ranges. Options are named `--PREFIX.NAME`.
    """
    import docstring_parser
    import tyro

    described = docstring_parser.parse(kind.__doc__ or "").params
    help_of = {one.arg_name: one.description or "" for one in described}
    chosen = []
    for name, one in inspect.signature(kind, eval_str=True).parameters.items():
        if name in hidden or not _is_simple(one):
            continue
        option = tyro.conf.arg(
            name=f"{prefix}.{name.replace('_', '-')}",
            help=_first_sentence(help_of.get(name, "")),
        )
        default = field(default=_hashable(one.default))
        chosen.append((name, Annotated[one.annotation, option], default))
    return make_dataclass(
        f"{kind.__name__}Arguments",
        chosen,
        bases=(Arguments,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": f"Arguments of {kind.__name__}."},
    )


def with_arguments(
    arguments: Arguments, changes: Arguments | Mapping[str, Any], owner: str
) -> Arguments:
    """Returns arguments with some of them changed.

    `Arguments` replace all. Raises `ValueError`, naming `owner`, for an
    argument that the class does not have.
    """
    if isinstance(changes, Arguments):
        return changes
    known = asdict(arguments)
    for name in changes:
        if name not in known:
            raise ValueError(
                f"Arguments of {owner} must be among "
                f"{', '.join(known) or 'none'}. Received: {name}."
            )
    values = {name: _hashable(value) for name, value in changes.items()}
    return type(arguments)(**{**known, **values})


def word_of(name: str, ending: str) -> str:
    """Turns a class's name into an option's word: `NPairLoss` -> `n-pair`."""
    plain = name.removesuffix(ending)
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", plain)
    return parts.lower()


def check_word(name: str, word: str, known: Iterable[str]) -> None:
    """Raises `ValueError` for an unknown word, with similar ones."""
    known = list(known)
    if word not in known:
        similar = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
        hint = f" Similar: {', '.join(similar)}." if similar else ""
        raise ValueError(
            f"`{name}` must be one of {', '.join(known)}. "
            f"Received: {name}={word}.{hint}"
        )


def _is_simple(parameter):
    if parameter.kind is parameter.VAR_KEYWORD:
        return False
    annotation = parameter.annotation
    parts = (annotation,)
    if get_origin(annotation) in (Union, types.UnionType):
        parts = get_args(annotation)
    return parameter.default is not parameter.empty and all(
        part in (*SIMPLE, types.NoneType)
        or (get_origin(part) in (Sequence, tuple))
        for part in parts
    )


def _first_sentence(text):
    return re.split(r"\.\s", " ".join(text.split()))[0].rstrip(".") + "."


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value
