"""One thread for a matrix product, where the work is shared above it."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import threadpoolctl


class _Limit:
    """How many ask for it, and what gives the threads back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.kept: Any = None


_limit = _Limit()


@functools.cache
def _libraries():
    """Those loaded by now, NumPy's among them; looking takes milliseconds."""
    return threadpoolctl.ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets NumPy's products run in the thread that asks for them.

    For the whole process, as BLAS has it: products of other threads take one
    thread too for so long. The first to come sets the limit, the last to go
    takes it back, whatever their order.
    """
    with _limit.lock:
        if not _limit.users:
            _limit.kept = _libraries().limit(limits=1, user_api="blas")
        _limit.users += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.users -= 1
            if not _limit.users:
                _limit.kept.restore_original_limits()
