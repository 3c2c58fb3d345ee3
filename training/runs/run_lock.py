"""A run is trained by one process at a time."""

import contextlib
import errno
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

FILE = ".training.lock"


class RunTakenError(FileExistsError):
    """Another process trains into a run's folder."""


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Locks a run's folder while a process trains into it.

    The system frees the lock of a process that ends, so a killed run can be
    resumed at once; the file stays in the folder. A file system without locks
    refuses nothing. Raises `RunTakenError` if another process has the lock.
    """
    with open(Path(folder) / FILE, "a+", encoding="utf-8") as file:
        try:
            _lock(file.fileno())
        except BlockingIOError as error:
            file.seek(0)
            raise RunTakenError(
                "A run must be trained by one process at a time. Received: "
                f"{folder}, which {file.read() or 'another process'} is "
                "training. Wait for it, or choose another --name."
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


def _lock(handle):
    """Locks a file, or raises `BlockingIOError` if another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks, of a network for example.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
