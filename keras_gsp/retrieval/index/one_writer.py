"""Readers beside one writer, in threads of one process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class OneWriter:
    """Orders threads that read something and threads that change it.

    `changing` lets one thread prepare a change while others read; in `alone`
    it finishes it: without those that are `reading`. Not reentrant.
    """

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self._free = threading.Condition()
        self._num_readers = 0
        self._is_taken = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Holds back a thread that wants to be `alone`."""
        with self._free:
            self._free.wait_for(lambda: not self._is_taken)
            self._num_readers += 1
        try:
            yield
        finally:
            with self._free:
                self._num_readers -= 1
                self._free.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits for the readers; called by the thread that is `changing`."""
        with self._free:
            self._is_taken = True
            self._free.wait_for(lambda: not self._num_readers)
        try:
            yield
        finally:
            with self._free:
                self._is_taken = False
                self._free.notify_all()
