"""Processors to share work between, and what they take it from."""

import os
import threading
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def num_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class SharedIterator(Generic[T]):
    """An iterator that several threads take from, each what comes next.

    Args:
        values: what to iterate over.
    """

    def __init__(self, values: Iterable[T]) -> None:
        self._iterator = iter(values)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._iterator)
