"""MilvusIndex on the embedded engine: graph, restarts, errors."""

import shutil
import warnings

import numpy as np
import pytest

from keras_gsp.retrieval import ExactIndex, MatchThreshold, MilvusIndex
from keras_gsp.retrieval.index import milvus_index
from keras_gsp.retrieval.space import SpaceFingerprint
from tests.retrieval.index.test_indexes import columns, same

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

SPACE = SpaceFingerprint("ab", "cd", "l2", 8)


@pytest.fixture
def index(tmp_path):
    index = MilvusIndex(tmp_path / "gallery.db", "things")
    yield index
    index.close()


def test_large_answers_come_in_several_calls(index, monkeypatch):
    rows, labels, ids, attributes = columns(300)
    exact = ExactIndex(rows, labels, ids, attributes=attributes)
    index.upsert(rows, labels, ids, attributes)
    index.build()
    queries = columns(9, seed=1)[0]
    assert (index.search(queries, 7).indices == -1).all()
    monkeypatch.setattr(milvus_index, "READ_ROWS", 64)
    monkeypatch.setattr(milvus_index, "BATCH_NUMBERS", 1000)
    assert index.items(index.ids())[2].tolist() == ids
    same(index.search(queries, 7), exact.search(queries, 7))


def test_changes_are_there_after_a_restart(index, tmp_path):
    rows, labels, ids, attributes = columns(60)
    exact = ExactIndex(rows, labels, ids, attributes=attributes)
    index.upsert(rows, labels, ids, attributes)
    index.build()
    assert index.delete(ids[:5]) == exact.delete(ids[:5]) == 5
    facts = {name: values[10:14] for name, values in attributes.items()}
    for one in (index, exact):
        one.upsert(rows[10:14] + 1, labels[10:14], ids[10:14], facts)
    index.match = exact.match = MatchThreshold(1.0, 0.1, 0.9, 10, 10)
    index.space = SPACE
    index.close()
    again = MilvusIndex(tmp_path / "gallery.db", "things")
    found, expected = again.search(rows, 5), exact.search(rows, 5)
    same(found, expected)
    assert again.match == exact.match and again.space == SPACE
    np.testing.assert_array_equal(found.is_match, expected.is_match)
    again.match = None
    again.close()
    assert MilvusIndex(tmp_path / "gallery.db", "things").match is None


def test_an_interrupted_upsert_can_be_repeated(index, monkeypatch):
    rows, labels, ids, attributes = columns(50)
    monkeypatch.setattr(milvus_index, "BATCH_NUMBERS", 80)
    real, calls = index._client.upsert, []

    def fails_once(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise pymilvus.exceptions.MilvusException(1, "disk full")
        return real(*arguments, **options)

    first = {name: values[:1] for name, values in attributes.items()}
    index.upsert(rows[:1], labels[:1], ids[:1], first)
    monkeypatch.setattr(index._client, "upsert", fails_once)
    with pytest.raises(RuntimeError, match="'upsert'.*disk full"):
        index.upsert(rows, labels, ids, attributes)
    assert 1 < len(index) < 50
    index.upsert(rows, labels, ids, attributes)
    assert len(index) == 50
    exact = ExactIndex(rows, labels, ids)
    same(index.search(rows, 5), exact.search(rows, 5))


def test_an_empty_index_is_refused_and_ties_are_in_the_order_of_ids(index):
    assert len(index) == 0 and index.delete(["a"]) == 0
    for call in (index.build, lambda: index.search(np.zeros(3))):
        with pytest.raises(RuntimeError, match="call `upsert` first"):
            call()
    index.upsert(np.ones((5, 2)), None, [30, 10, 50, 20, 40])
    assert index.search(np.zeros(2), 3).ids.tolist() == [[10, 20, 30]]


def test_a_refused_upsert_makes_no_collection(index, monkeypatch):
    rows, ids, text = np.eye(2), [1, 2], ["x", "x" * 70_000]
    for labels, message in [
        (text, "label.*70000 exceeds"),
        ([b"a", b"\xff"], "label.*codec can't encode"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            index.upsert(rows, labels, ids)

    def fails(*_, **__):
        raise pymilvus.exceptions.MilvusException(1, "disk full")

    for name in "upsert", "create_index", "create_collection":
        with monkeypatch.context() as patch:
            patch.setattr(index._client, name, fails)
            with pytest.raises(RuntimeError, match="disk full"):
                index.upsert(rows, ids, ids)
        assert index.embedding_size is None
        assert not index._client.has_collection("things")


def test_equal_items_hide_no_others_by_default(index):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 16)).astype("float32")
    rows[300:600] = rows[300]
    index.upsert(rows, None, np.arange(1000))
    others = np.r_[0:100, 900:1000]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.build()
    found = index.search(rows[others], 1)
    np.testing.assert_array_equal(found.ids[:, 0], others)
    # A graph of few links misses items, and says so.
    poor = {"M": 2, "efConstruction": 2}
    with pytest.warns(UserWarning, match="finds .*Take FLAT"):
        index.build({"index_type": "HNSW", "params": poor})


def test_a_closed_index_answers_no_more(index, tmp_path):
    index.upsert(np.eye(2), ["a", "b"], [1, 2])
    other = MilvusIndex(tmp_path / "gallery.db", "things")
    for _ in range(2):
        index.close()
    with pytest.raises(RuntimeError, match="must be open.*was closed"):
        index.search(np.eye(2), 1)
    assert other.search(np.eye(2), 1).ids[1, 0] == 2
    other.close()


def test_a_removed_database_is_not_written_to(index, tmp_path):
    path = tmp_path / "gallery.db"
    index.upsert(np.eye(2), ["a", "b"], [1, 2])
    shutil.rmtree(path)
    for call in (
        len,
        lambda one: one.upsert(np.eye(2), ["a", "b"], [3, 4]),
        lambda one: MilvusIndex(path, "things"),
    ):
        with pytest.raises(RuntimeError, match="closed or removed"):
            call(index)
    # A folder that somebody puts there stays.
    path.mkdir()
    (path / "photo.png").write_text("mine")
    index.close()
    assert (path / "photo.png").read_text() == "mine"


def test_a_database_that_is_open_elsewhere_is_refused(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "gallery.db"
    path.mkdir()
    # The lock of another process that has the database open.
    with open(path / "LOCK", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="no other process may have it"):
            MilvusIndex(path, "things")
