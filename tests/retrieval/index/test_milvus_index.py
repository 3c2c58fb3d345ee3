"""MilvusIndex on the embedded engine: the same answers as exact search."""

import subprocess
import sys

import numpy as np
import pytest

from keras_gsp.retrieval import (
    ExactIndex,
    MatchThreshold,
    MilvusIndex,
    SearchIndex,
    certificate,
)

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

COLORS = np.array(["red", "blue", "gre'en\"\\"])
FIELDS = "ids", "labels", "distances", "counts"


def columns(count, seed=0, size=8):
    rows = np.random.default_rng(seed).normal(size=(count, size))
    ids = [f"i{i:04}" for i in range(count)]
    attributes = {
        "color": COLORS[np.arange(count) % 3],
        "year": 2000 + np.arange(count) % 10,
    }
    return rows.astype("float32"), np.arange(count) % 7, ids, attributes


@pytest.fixture
def index(tmp_path):
    index = MilvusIndex(tmp_path / "gallery.db", "things")
    yield index
    index.close()


def same(found, expected):
    for name in FIELDS:
        np.testing.assert_array_equal(
            getattr(found, name), getattr(expected, name), name
        )


def test_answers_are_those_of_exact_search(index):
    rows, labels, ids, attributes = columns(300)
    exact = ExactIndex(rows, labels, ids, attributes=attributes)
    index.upsert(rows, labels, ids, attributes)
    assert isinstance(index, SearchIndex) and index.embedding_size == 8
    queries = np.concatenate([columns(9, seed=1)[0], rows[:3]])
    own = [None] * 9 + ids[:3]
    for is_built in (False, True):
        if is_built:
            index.build()
        for where in (
            None,
            {"label": 3, "color": ["red", COLORS[2]]},
            {"year": slice(2003, 2006), "id": ids[:200]},
            {"color": "black"},
        ):
            options = {"exclude_ids": own, "where": where}
            found = index.search(queries, 7, ef=300, **options)
            same(found, exact.search(queries, 7, **options))
            assert index.count(where) == exact.count(where)
    assert (found.indices == -1).all()
    same(index.search_exactly(queries, 7), exact.search(queries, 7))
    facts = certificate(index, queries[:9], labels[:9], k=5)
    assert facts["recall"] > 0.9 and facts["map_at_r_exact"] > 0


def test_changes_hold_and_survive_the_process(index, tmp_path):
    rows, labels, ids, attributes = columns(60)
    exact = ExactIndex(rows, labels, ids, attributes=attributes)
    index.upsert(rows, labels, ids, attributes)
    index.build()
    assert index.delete(ids[:5]) == exact.delete(ids[:5]) == 5
    assert index.delete([*ids[:6], "unknown"]) == 1
    exact.delete(ids[5])
    new = rows[10:14] + 1
    facts = {name: values[10:14] for name, values in attributes.items()}
    for one in (index, exact):
        one.upsert(new, labels[10:14], ids[10:14], facts)
    assert len(index) == len(exact) == 54
    same(index.search(rows, 5, ef=200), exact.search(rows, 5))
    assert index.search(rows[:2]).is_match is None
    index.match = exact.match = MatchThreshold(1.0, 0.1, 0.9, 10, 10)
    index.close()
    again = MilvusIndex(tmp_path / "gallery.db", "things")
    found, expected = again.search(rows, 5, ef=200), exact.search(rows, 5)
    same(found, expected)
    assert again.match == exact.match
    np.testing.assert_array_equal(found.is_match, expected.is_match)
    again.match = None
    again.close()
    assert MilvusIndex(tmp_path / "gallery.db", "things").match is None


def test_integer_ids_and_ties_in_the_order_of_ids(index):
    index.upsert(np.ones((5, 2)), None, [30, 10, 50, 20, 40])
    found = index.search(np.zeros(2), 3)
    assert found.ids.tolist() == [[10, 20, 30]]
    assert found.labels.tolist() == [["", "", ""]]
    found = index.search(np.zeros((1, 2)), 9, exclude_ids=[20])
    assert found.ids.tolist() == [[10, 30, 40, 50, -1]]
    assert found.counts.tolist() == [4]


def test_an_upsert_that_stopped_half_way_can_be_repeated(index, monkeypatch):
    rows, labels, ids, attributes = columns(50)
    monkeypatch.setattr(
        "keras_gsp.retrieval.index.milvus_index.BATCH_NUMBERS", 80
    )
    real, calls = index._client.upsert, []

    def fails_once(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise pymilvus.exceptions.MilvusException(1, "disk full")
        return real(*arguments, **options)

    monkeypatch.setattr(index._client, "upsert", fails_once)
    with pytest.raises(RuntimeError, match="'upsert'.*disk full"):
        index.upsert(rows, labels, ids, attributes)
    assert 0 < len(index) < 50
    index.upsert(rows, labels, ids, attributes)
    assert len(index) == 50
    exact = ExactIndex(rows, labels, ids)
    same(index.search(rows, 5), exact.search(rows, 5))


@pytest.mark.slow
def test_a_client_killed_in_the_middle_of_an_upsert_repeats_it(tmp_path):
    path = tmp_path / "gallery.db"
    script = f"""
import os
from tests.retrieval.index.test_milvus_index import MilvusIndex, columns
from keras_gsp.retrieval.index import milvus_index
milvus_index.BATCH_NUMBERS = 80
index = MilvusIndex({str(path)!r}, "things")
real, calls = index._client.upsert, []
def killed(*arguments, **options):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), 9)
    return real(*arguments, **options)
index._client.upsert = killed
index.upsert(*columns(50))
"""
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    rows, labels, ids, attributes = columns(50)
    index = MilvusIndex(path, "things")
    assert len(index) < 50
    index.upsert(rows, labels, ids, attributes)
    assert len(index) == 50
    exact = ExactIndex(rows, labels, ids)
    same(index.search(rows, 5), exact.search(rows, 5))
    index.close()


def test_an_empty_index_says_so(index):
    assert len(index) == 0 and index.delete(["a"]) == 0
    for call in (index.build, lambda: index.search(np.zeros(3))):
        with pytest.raises(RuntimeError, match="call `upsert` first"):
            call()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.eye(3)[:, :2], None, [7, 8, 9]), ValueError, "gallery has 3"),
        ((np.eye(3) * np.nan, None, [7, 8, 9]), ValueError, "finite"),
        ((np.eye(3), None, ["a", "b", "c"]), TypeError, "gallery has integer"),
        ((np.eye(3), [1, 2, 3], [7, 8, 9]), TypeError, "gallery has text"),
        ((np.eye(3), None, [7, 7, 9]), ValueError, "twice, for example"),
        ((np.eye(3), None, None), ValueError, "ids=None"),
        (
            (np.eye(3), None, [7, 8, 9], {"a": [1, 2, 3]}),
            ValueError,
            r"\['a'\]",
        ),
        ((np.eye(3), None, [7, 8, 9], {"a b": 1}), ValueError, "be words"),
    ],
)
def test_what_does_not_fit_is_refused(index, arguments, error, message):
    index.upsert(np.eye(3), None, [1, 2, 3])
    with pytest.raises(error, match=message):
        index.upsert(*arguments)
    assert len(index) == 3
    for k, words in ((0, "k=0"), (16_384, "at most 16367")):
        with pytest.raises(ValueError, match=words):
            index.search(np.eye(3), k)


def test_another_process_is_told_why_it_must_wait(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "gallery.db"
    MilvusIndex(path, "things").close()
    # As another process holds it that has the database open.
    with open(path / "LOCK", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="no other process may have it"):
            MilvusIndex(path, "things")
    MilvusIndex(path, "things").close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        MilvusIndex(tmp_path / "file" / "gallery.db", "things")


def test_a_server_that_does_not_answer_gets_its_start_command():
    with pytest.raises(RuntimeError, match="is it running.*docker run"):
        MilvusIndex("http://127.0.0.1:9", "things", timeout=1)


@pytest.mark.parametrize(
    ("uri", "collection", "message"),
    [
        ("gallery", "a", "path ending in .db"),
        ("ftp://gallery.db", "a", "begin with http"),
        ("gallery.db", "a b", "letters, digits"),
    ],
)
def test_bad_addresses_are_refused(uri, collection, message):
    with pytest.raises(ValueError, match=message):
        MilvusIndex(uri, collection)


@pytest.mark.parametrize("name", ["pymilvus", "milvus_lite"])
def test_without_the_engine_the_error_says_what_to_install(
    name, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"keras-gsp\[milvus\]"):
        MilvusIndex(tmp_path / "a.db", "a")
