"""What all commands share: options, warnings as notes, errors in a sentence."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tyro

from training.recipes.settings import check_fields


def run_command(
    name: str,
    about: str | None,
    kind: type,
    action: Callable[[Any], Any],
    arguments: list[str] | None,
) -> Any:
    """Parses the options of a command, runs it and returns its result.

    `kind` is the dataclass of the options, checked by `check_fields`, which
    `action` takes. A wrong option, or an error about files or settings, ends
    the process.
    """
    try:
        command: Any = tyro.cli(
            kind,
            prog=f"python -m training.{name}",
            description=about,
            args=arguments,
        )
        check_fields(command)
        with printed_notes():
            return action(command)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")


def check_new(command: Any, *names: str) -> None:
    """Raises `FileExistsError` for a file to write that is there already."""
    for name in names:
        path = getattr(command, name)
        if path is not None and path.exists():
            raise FileExistsError(f"`{name}` must be new. Received: {path}.")


@contextlib.contextmanager
def printed_notes() -> Iterator[None]:
    """Prints each warning as one line, without the file that raised it."""
    with warnings.catch_warnings():
        warnings.showwarning = _print_note
        yield


def _print_note(message, category, filename, lineno, file=None, line=None):
    print(f"note: {message}")
