"""Threads take each value once."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from keras_gsp.host import processors
from keras_gsp.host.processors import SharedIterator, num_processors


def test_threads_share_what_there_is():
    def values():
        # A generator that two threads enter at once raises.
        yield from range(5000)

    shared = SharedIterator(values())
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(list, [shared] * 8))
    assert sorted(sum(parts, [])) == list(range(5000))
    assert all(part == sorted(part) for part in parts)
    with pytest.raises(StopIteration):
        next(shared)


def test_processors_are_those_that_may_be_used(monkeypatch):
    assert 1 <= num_processors() <= os.cpu_count()
    monkeypatch.delattr(processors.os, "sched_getaffinity", raising=False)
    assert num_processors() == os.cpu_count()
    monkeypatch.setattr(processors.os, "cpu_count", lambda: None)
    assert num_processors() == 1
