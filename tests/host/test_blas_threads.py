"""Products take one thread for as long as anybody asks for it."""

import contextlib
import threading

import numpy as np
import pytest
import threadpoolctl

from keras_gsp.host import blas_threads
from keras_gsp.host.blas_threads import one_blas_thread
from keras_gsp.retrieval import ExactIndex


def num_threads():
    """Threads of every BLAS that was there at the first search."""
    return [
        library["num_threads"]
        for library in blas_threads._libraries().info()
        if library["user_api"] == "blas"
    ]


@pytest.fixture(autouse=True)
def two_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def test_numpy_has_one_thread_inside_and_its_own_behind():
    assert num_threads() and {*num_threads()} == {2}
    with one_blas_thread():
        assert {*num_threads()} == {1}
    assert {*num_threads()} == {2}


def test_the_last_to_go_gives_the_threads_back():
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(one_blas_thread())
    second.enter_context(one_blas_thread())
    first.close()
    assert {*num_threads()} == {1}
    second.close()
    assert {*num_threads()} == {2}


def test_an_error_gives_them_back():
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert {*num_threads()} == {2}


def test_searches_at_once_find_the_same_and_leave_the_threads():
    rows = np.random.default_rng(0).normal(size=(3000, 16)).astype("float32")
    index = ExactIndex(rows)
    expected = index.search(rows[:300], 5).indices
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(index.search(rows[:300], 5).indices)
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for one in found:
        np.testing.assert_array_equal(one, expected)
    assert {*num_threads()} == {2}
