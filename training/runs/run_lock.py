"""A run is trained by one process at a time."""

import contextlib
import os
import platform
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FILE = ".training.lock"


class RunTakenError(FileExistsError):
    """Another process trains into a run's folder."""


class RunLock:
    """Holds a run's folder while a process trains into it.

    The system frees the lock of a process that ends, so a killed run can be
    resumed at once. A file system without locks refuses nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE
        self._handle: int | None = None

    def __enter__(self) -> Self:
        """Takes the lock, or raises `RunTakenError`."""
        # Between opening and locking its owner may have removed the file.
        # Not for ever: some file systems number a file anew each time.
        for _ in range(10):
            self._handle = self._open()
            if self._is_there():
                break
            self._close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the lock and removes its file."""
        is_there = self._is_there()
        if os.name != "posix":
            self._close()  # Windows removes no file that is open.
        if is_there:
            # A file that remains locks nothing.
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._close()

    def _open(self):
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle)
            os.ftruncate(handle, 0)
            owner = f"process {os.getpid()} on {platform.node()}"
            os.write(handle, owner.encode())
        except BlockingIOError as error:
            owner = os.read(handle, 200).decode(errors="replace")
            os.close(handle)
            raise RunTakenError(
                "A run must be trained by one process at a time. Received: "
                f"{self.folder}, which {owner or 'another process'} is "
                "training. Wait for it, or choose another --name."
            ) from error
        except OSError:
            os.close(handle)
            raise
        return handle

    def _is_there(self):
        if self._handle is None:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._handle))

    def _close(self):
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _lock(handle):
    """Locks a file, or raises `BlockingIOError` when another has it."""
    if os.name == "posix":
        import errno
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            # A file system without locks, of a network for example.
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
    elif os.name == "nt":
        import msvcrt  # its functions are there on Windows alone

        lock: Any = msvcrt

        # A byte after the text, which others can still read.
        os.lseek(handle, 4096, os.SEEK_SET)
        try:
            lock.locking(handle, lock.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(str(error)) from error
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
