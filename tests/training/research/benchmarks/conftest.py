"""Contenders that are processes of their own run in this one: seconds less."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from training.research import report


@pytest.fixture
def in_this_process(monkeypatch):
    """`in_own_process` calls its function here."""
    monkeypatch.setattr(
        report,
        "ProcessPoolExecutor",
        lambda count, _: ThreadPoolExecutor(count),
    )
