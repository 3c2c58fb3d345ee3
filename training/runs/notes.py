"""Warnings about data, printed by commands as notes."""

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def printed_notes() -> Iterator[None]:
    """Prints each warning as one line, without the file that raised it."""
    with warnings.catch_warnings():
        warnings.showwarning = _print_note
        yield


def _print_note(message, category, filename, lineno, file=None, line=None):
    print(f"note: {message}")
