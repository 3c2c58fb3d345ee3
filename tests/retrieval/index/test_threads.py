"""Threads that search while one changes the index read whole states."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_gsp.retrieval import ExactIndex, MilvusIndex
from tests.retrieval.index.test_indexes import (
    every_engine,
    made,
    random_rows,
    same,
)


def in_threads(work, count):
    """Runs work(number) in threads; raises what one of them raised."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


@every_engine
def test_readers_beside_a_writer_see_whole_states(kind, tmp_path):
    """Every state has 40 items of one label; positions and rows move."""
    count = 40
    rows = random_rows(count)
    labels = np.zeros(count, int)
    index = made(kind, tmp_path, rows, labels, np.arange(count))
    is_over = threading.Event()

    def work(number):
        if number:
            while not is_over.is_set():
                found = index.search(rows[:10], 3)
                # An id stays with its row, before a change and after it.
                assert (found.ids[:, 0] % count == np.arange(10)).all()
                assert (found.distances[:, 0] == 0).all()
                assert (found.counts == 3).all()
                assert (found.labels == found.ids // count).all()
            return
        try:
            for turn in range(1, 8):
                ids = np.arange(count) + count * turn
                index.upsert(rows, labels + turn, ids)
                if kind is MilvusIndex and turn == 3:
                    index.build()
                assert index.delete(ids - count) == count
        finally:
            is_over.set()

    in_threads(work, 3)
    assert len(index) == count


@every_engine
def test_several_writers_lose_nothing(kind, tmp_path):
    rows = random_rows(40)
    index = made(kind, tmp_path, rows[:1], [0], [1000])

    def write(number):
        for i in range(number, 40, 4):
            index.upsert(rows[i : i + 1], [i], [i])
        assert index.delete([number]) == 1

    in_threads(write, 4)
    assert sorted(index.ids().tolist()) == [*range(4, 40), 1000]
    expected = ExactIndex(rows[4:], np.arange(4, 40), np.arange(4, 40))
    index.delete([1000])
    same(index.search(rows, 1), expected.search(rows, 1))
