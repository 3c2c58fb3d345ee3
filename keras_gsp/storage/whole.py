"""Files and folders that are written whole or not at all.

    with whole_version(path, overwrite=overwrite) as folder:
        ...  # write files into it
    with reading(path) as folder:
        ...  # read them, from one version

- `whole_file` writes a single file, renamed in one step.
- `whole_version` writes a folder that this package reads, such as an index.
  Inside it, `current.json`, replaced in one step, names the folder of the
  current version. `path` may be a mount point.
- `whole_folder` writes a folder that others read by its path, a SavedModel.
  Linux exchanges old and new in one step; elsewhere there is a moment without.

The old is whole until the new is in place. It goes then, or, while somebody
is in `reading`, with the next save; files that are open or mapped stay
readable. Without locks, as on NFS, the version before the current one stays.
Links are followed. `overwrite=True` replaces only what was written here: a
file that `checksums.json` does not list is refused by name.
"""

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keras_gsp.storage.checksums import CHECKSUMS, listed, write_checksums

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

CURRENT = "current.json"
_PARTIAL = ".partial"
_VERSION = re.compile("version-[0-9a-f]{8}")
# Arguments of Linux's `renameat2`: paths of this process; exchange.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NOT_SUPPORTED = errno.ENOSYS, errno.EINVAL, errno.ENOTSUP


def is_left_behind(path: Path) -> bool:
    """Whether a killed process left this file or folder unfinished."""
    if _is_version(path):
        if (path / CHECKSUMS).exists():
            return False
        try:
            return _mark(path).exists() or not any(path.iterdir())
        except OSError:  # Somebody has just removed it.
            return not path.exists()
    return path.name.startswith(".") and path.name.endswith(_PARTIAL)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary name to write to, renamed to `path` on success.

    After a power cut there is the old file or the new one. An error inside the
    block removes the temporary file; a killed process leaves it, with the
    ending `.partial`. The folder is made.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PARTIAL}")
    try:
        with errors_name(path, aside):
            yield aside
            _replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_version(
    path: str | os.PathLike, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yields a folder to write to, the current version of `path` on success.

    An error inside the block removes it and leaves `path` as it was. Checksums
    are added if the block wrote none. Raises `FileExistsError` if `path` has
    files, without `overwrite`, or files that were not written here.
    """
    root = Path(os.path.realpath(path))
    check_version(root, overwrite=overwrite)
    is_new = not root.exists()
    root.mkdir(parents=True, exist_ok=True)
    try:
        with _new_folder(root, root, "version-") as folder:
            _mark(folder).touch()
            yield folder
            if not (folder / CHECKSUMS).is_file():
                write_checksums(folder)
            _mark(folder).unlink()
            _check_free(root, overwrite, _foreign_in_versions, folder)
            former = current_folder(root)
            text = json.dumps({"version": folder.name}) + "\n"
            (folder / CURRENT).write_text(text, encoding="utf-8")
            _replace(folder / CURRENT, root / CURRENT)
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                root.rmdir()  # unless it has a version
    for old in [*root.iterdir()]:
        if _is_version(old):
            is_free = old != former and not is_left_behind(old)
            _remove_unread(old, is_free, root)
        # Killed after it removed a version, a process leaves the mark.
        version = old.with_name(old.name[1 : -len(_PARTIAL)])
        is_mark = _is_version(version) and old == _mark(version)
        if is_mark and not version.exists():
            old.unlink(missing_ok=True)


def check_version(path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Raises what `whole_version` would, before there is something to write."""
    root = Path(os.path.realpath(path))
    _check_free(root, overwrite, _foreign_in_versions)


@contextlib.contextmanager
def whole_folder(
    path: str | os.PathLike, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yields a folder to write to, which becomes `path` on success.

    As `whole_version`, but for a folder that others read. The block calls
    `write_checksums`, or the folder cannot be overwritten later. A mount point
    cannot be replaced: `OSError`.
    """
    path = Path(os.path.realpath(path))
    _check_free(path, overwrite, _foreign)
    if os.path.ismount(path):
        raise OSError(
            f"`path` must not be a mount point. Received: path={str(path)!r}; "
            "choose a folder inside it."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with _new_folder(path, path.parent, f".{path.name}.", _PARTIAL) as folder:
        yield folder
        _check_free(path, overwrite, _foreign)
        old = folder
        if not path.is_dir():
            os.rename(folder, path)
        elif not _exchange(folder, path):
            old = folder.with_name(f"{folder.name[: -len(_PARTIAL)]}.old")
            old = old.with_name(old.name + _PARTIAL)
            os.rename(path, old)
            try:
                os.rename(folder, path)
            except BaseException:
                os.rename(old, path)
                raise
    _sync_folder(path.parent)
    token = "[0-9a-f]" * 8
    for left in path.parent.glob(
        f".{glob.escape(path.name)}.{token}*{_PARTIAL}"
    ):
        if left.is_dir():
            _remove_unread(left, left == old)


@contextlib.contextmanager
def reading(path: str | os.PathLike) -> Iterator[Path]:
    """Yields the current version of a folder; nobody removes it meanwhile.

    Also of folders that `whole_folder` wrote, and of any others.
    """
    root = Path(os.path.realpath(path))
    while True:
        folder = current_folder(root)
        with _held(folder) as handle:
            if not _is_at(handle, folder) or current_folder(root) != folder:
                continue  # It was just replaced.
            # The folder even if it is moved, as `whole_folder` may do.
            fixed = Path(f"/proc/self/fd/{handle}")
            yield fixed if folder == root and fixed.is_dir() else folder
            return


def current_folder(path: str | os.PathLike) -> Path:
    """Returns where the files of `path` are: its current version, or itself."""
    path = Path(path)
    try:
        text = (path / CURRENT).read_text(encoding="utf-8")
        version = json.loads(text)["version"]
        if _VERSION.fullmatch(version):
            return path / version
        reason = repr(version)
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"{str(path / CURRENT)!r} must name a version. Received: {reason}. "
        "Copy or save it again."
    )


def _mark(folder):
    """What says beside a version that it is not whole, or not any more."""
    return folder.with_name(f".{folder.name}{_PARTIAL}")


def _is_version(path):
    return bool(_VERSION.fullmatch(path.name)) and not path.is_symlink()


def _check_free(
    path: Path,
    overwrite: bool,
    foreign: Callable[[Path], Path | None],
    folder: Path | None = None,
) -> None:
    """Raises unless a new `folder` may become what is at `path`."""
    if not os.path.lexists(path):
        return
    if path.is_dir() and all(
        is_left_behind(entry) or entry == folder for entry in path.iterdir()
    ):
        return
    if not overwrite:
        raise FileExistsError(
            f"`path` must not exist. Received: path={str(path)!r}, which does. "
            "Choose another path, or pass overwrite=True to replace what was "
            "saved there."
        )
    file = foreign(path) if path.is_dir() else path
    if file is not None:
        raise FileExistsError(
            "overwrite=True replaces only what was saved or exported. "
            f"Received: path={str(path)!r} with {str(file)!r}, another file. "
            "Choose another path."
        )


def _foreign(folder):
    """The first file that the checksums of a folder do not list."""
    known: set[str] = set()
    with contextlib.suppress(ValueError):
        known = listed(folder).keys() | {CHECKSUMS}
    if _is_version(folder):
        known |= {CURRENT}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            if path.relative_to(folder).as_posix() not in known:
                return path
    return None


def _foreign_in_versions(root):
    for path in sorted(root.iterdir()):
        if is_left_behind(path) or path.name == CURRENT:
            continue
        file = _foreign(path) if _is_version(path) else path
        if file is not None:
            return file
    return None


@contextlib.contextmanager
def errors_name(path: Path, aside: Path) -> Iterator[None]:
    """Lets errors of what is written name the path of the user.

    The error of a full disk names no file, others a temporary one.
    """
    try:
        yield
    except OSError as error:
        name = str(error.filename or aside)
        if error.errno is None or not name.startswith(str(aside)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def _new_folder(path, parent, start, end=""):
    """Makes a folder with a name of its own; removes it after an error."""
    folder = parent / f"{start}{secrets.token_hex(4)}{end}"
    while True:
        with errors_name(path, folder):
            folder.mkdir()
        with _held(folder) as handle:
            if not (folder.is_dir() and _is_at(handle, folder)):
                continue  # Another writer took it for left behind.
            try:
                with errors_name(path, folder):
                    yield folder
            except BaseException:
                if current_folder(parent) != folder:
                    shutil.rmtree(folder, ignore_errors=True)
                _mark(folder).unlink(missing_ok=True)
                raise
            return


@contextlib.contextmanager
def _held(folder):
    """Shares the lock of a folder; yields its handle, `None` without one."""
    handle = None
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                handle = os.open(folder, os.O_RDONLY)
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _is_at(handle, folder):
    """Whether an open folder still has its name; true without a handle."""
    try:
        status = os.stat(folder)
    except OSError:
        return handle is None
    return handle is None or os.path.samestat(os.fstat(handle), status)


def _remove_unread(folder, is_free_without_lock, root=None):
    """Removes a folder unless somebody holds it, or has files in it.

    `root` is that of a version, which must not be the current one.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        try:
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(handle, folder):
                return  # Exchanged since it was opened.
        except BlockingIOError:
            return
        except (AttributeError, OSError):
            if not is_free_without_lock:
                return
        if root is not None and current_folder(root) == folder:
            return
        if is_left_behind(folder) or _foreign(folder) is None:
            if root is None:
                shutil.rmtree(folder, ignore_errors=True)
                return
            _mark(folder).touch()
            shutil.rmtree(folder)
            _mark(folder).unlink()


def _exchange(one, other):
    """Exchanges two folders in one step; `False`: the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    names = _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)
    if rename(*names, _RENAME_EXCHANGE) == 0:
        return True
    if (code := ctypes.get_errno()) in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _replace(file, path):
    """Gives a file, forced to the disk, its name."""
    # Opened for writing, or Windows cannot force it to the disk.
    with open(file, "r+b") as opened:
        os.fsync(opened.fileno())
    os.replace(file, path)
    _sync_folder(path.parent)


def _sync_folder(folder):
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows has no handle for a folder.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
