"""The number of processors is that of this process."""

import os

from keras_gsp.host import processors
from keras_gsp.host.processors import num_processors


def test_processors_are_those_that_may_be_used(monkeypatch):
    assert 1 <= num_processors() <= os.cpu_count()
    monkeypatch.delattr(processors.os, "sched_getaffinity", raising=False)
    assert num_processors() == os.cpu_count()
    monkeypatch.setattr(processors.os, "cpu_count", lambda: None)
    assert num_processors() == 1
