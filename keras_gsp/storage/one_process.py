"""A lock that lets one process at a time change a folder."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_gsp.storage.whole import errors_name


class TakenError(RuntimeError):
    """Another process is at work in a folder."""


@contextlib.contextmanager
def one_process(path: str | os.PathLike) -> Iterator[None]:
    """Refuses to begin while another process, or thread, is inside.

    The lock is a file beside `path`, `.NAME.lock`, which names its process. It
    ends with the block or with the process, also when that is killed.

    A file system without locks refuses nothing.

    Raises:
        TakenError: another process holds the lock; the error names it.
    """
    path = Path(os.path.abspath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with errors_name(path, lock):
        opened = open(lock, "a+", encoding="utf-8")
    with opened as file:
        try:
            _take(file)
        except (BlockingIOError, PermissionError):
            holder = lock.read_text(encoding="utf-8")
            raise TakenError(
                "Only one process at a time may change "
                f"{str(path)!r}. Received: {holder or 'another process'} is "
                "at work there; wait for it, or end it."
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _take(file: Any) -> None:
    """Locks an open file, or raises `OSError`; closing it lets go."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        # Far behind the text: Windows keeps others from reading what is locked.
        file.seek(2**20)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
