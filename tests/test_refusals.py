"""What cannot be right is refused by name, with what was received.

A room's rows are `ROWS` in `tests/refusals/ROOM.py`: a callable, its arguments
(a tuple, or a dictionary of keywords) and a regular expression of the message.
"""

import importlib
import pathlib

import pytest

ERRORS = ValueError, TypeError, RuntimeError, OSError, LookupError, ImportError
FOLDER = pathlib.Path(__file__).parent / "refusals"


def rows():
    for path in sorted(FOLDER.glob("[!_]*.py")):
        room = importlib.import_module(f"tests.refusals.{path.stem}")
        for number, row in enumerate(room.ROWS):
            yield pytest.param(*row, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("call, arguments, message", [*rows()])
def test_is_refused(call, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ERRORS, match=message):
        if isinstance(arguments, dict):
            call(**arguments)
        else:
            call(*arguments)
