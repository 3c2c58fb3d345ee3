"""Files and folders that are written whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PARTIAL = ".partial"


def is_left_behind(path: Path) -> bool:
    """Whether a killed process left this file in `whole_file`."""
    return path.name.startswith(".") and path.name.endswith(_PARTIAL)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary name to write to, renamed to `path` on success.

    After a power cut there is the old file or the new one. An error inside the
    block removes the temporary file; a killed process leaves it, with the
    ending `.partial`. The folder is made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    try:
        yield aside
        # Opened for writing, or Windows cannot force it to the disk.
        with open(aside, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        _sync_folder(path.parent)
    except OSError as error:
        # The error of a full disk names no file.
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(
    path: str | os.PathLike, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yields a temporary folder to write to, renamed to `path` on success.

    An error inside the block removes it and leaves what was at `path`.
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


def _sync_folder(folder):
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows has no handle for a folder.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
