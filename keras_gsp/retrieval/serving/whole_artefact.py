"""Artefacts on disk that are whole or absent, and never overwritten unasked."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


@contextlib.contextmanager
def whole_artefact(path, *, overwrite=False):
    """Yields a new folder beside `path`, and renames it to `path` at the end.

    An error inside the block removes the folder: what was at `path` before is
    untouched, and nothing half-written is left.

    Args:
        path: where the artefact goes.
        overwrite: whether an artefact that is already there is replaced.

    Yields:
        The folder to write into, a `pathlib.Path`.

    Raises:
        FileExistsError: something is at `path` and `overwrite` is `False`.
    """
    path = Path(path)
    _check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        folder = aside / "new"
        folder.mkdir()
        yield folder
        _check_free(path, overwrite)
        if os.path.lexists(path):
            os.replace(path, aside / "old")
        os.replace(folder, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _check_free(path, overwrite):
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(
            f"`path` must not exist. Received: path={str(path)!r}, which does. "
            "Choose another path, or pass overwrite=True to replace it."
        )
