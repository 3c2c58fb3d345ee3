"""Files and folders on disk that are whole or absent."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PARTIAL = ".partial"


def is_left_behind(path: Path) -> bool:
    """Whether a process that was killed in `whole_file` left this file."""
    return path.name.startswith(".") and path.name.endswith(_PARTIAL)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a name to write to, which becomes `path` when all went well.

    The new file is forced to the disk before it takes the place of an old
    one, and so is the folder's entry: after a power cut there is the old
    file or the new one. A killed process leaves a file ending `.partial`
    behind, which nothing reads; an error inside the block removes it.

    Args:
        path: the file; its folder is made. One that is there is replaced.

    Yields:
        The file to write, a `pathlib.Path` in the same folder.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    try:
        yield aside
        # To be written to, or Windows cannot force it to the disk.
        with open(aside, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        # That of a full disk says no name.
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(
    path: str | os.PathLike, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yields a new folder beside `path`, and renames it to `path` at the end.

    An error inside the block removes the folder: what was at `path` before is
    untouched, and nothing half-written is left.

    Args:
        path: where the folder goes.
        overwrite: whether one that is already there is replaced.

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


def sync_folder(folder: Path) -> None:
    """Forces a folder's entries to the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows has no handle for a folder.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
