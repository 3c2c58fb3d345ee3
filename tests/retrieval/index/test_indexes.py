"""Laws of all indexes; the oracle sorts all distances in float64."""

import importlib.util
import json
import sys

import keras
import numpy as np
import pytest

from keras_gsp.retrieval import (
    ExactIndex,
    FaissIndex,
    MatchThreshold,
    MilvusIndex,
    ScannIndex,
    SearchIndex,
    search_recall,
)
from keras_gsp.retrieval.index import approximate
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import current_folder


def installed(*modules):
    return all(importlib.util.find_spec(name) for name in modules)


# By default, each compares with all items.
NEEDED = {
    ExactIndex: True,
    FaissIndex: installed("faiss"),
    ScannIndex: installed("scann") and keras.backend.backend() == "tensorflow",
    MilvusIndex: installed("pymilvus", "milvus_lite"),
}
ENGINES = [
    pytest.param(
        kind,
        id=kind.kind,
        marks=pytest.mark.skipif(not needed, reason="the engine is missing"),
    )
    for kind, needed in NEEDED.items()
]
every_engine = pytest.mark.parametrize("kind", ENGINES)
every_engine_in_memory = pytest.mark.parametrize("kind", ENGINES[:3])
COLORS = np.array(["red", "blue", "gre'en\"\\"])


def random_rows(count, size=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, size)).astype("float32")


def clustered(count, seed=0, size=32):
    """Rows around 30 centers far from the origin, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(30, size=count)
    centers = np.random.default_rng(99).normal(size=(30, size))
    rows = 7 + centers[labels] + 0.3 * rng.normal(size=(count, size))
    return rows.astype("float32"), labels


def columns(count, seed=0):
    """Rows, labels, ids in rising order, and attributes."""
    ids = [f"i{i:04}" for i in range(count)]
    attributes = {
        "color": COLORS[np.arange(count) % 3],
        "year": 2000 + np.arange(count) % 10,
    }
    return random_rows(count, seed=seed), np.arange(count) % 7, ids, attributes


def made(kind, folder, rows, labels, ids, attributes=None, match=None):
    if kind is not MilvusIndex:
        return kind(rows, labels, ids, attributes=attributes, match=match)
    index = MilvusIndex(folder / "gallery.db", "things")
    index.match = match
    index.upsert(rows, labels, ids, attributes)
    return index


def filled(kind, folder, count=60, **options):
    return made(kind, folder, *columns(count), **options)


def slow_search(queries, rows, k, excluded=None):
    """(positions, distances) of each query, one sort at a time."""
    found = []
    for i, query in enumerate(np.asarray(queries, "float64")):
        distances = np.linalg.norm(rows.astype("float64") - query, axis=1)
        order = np.lexsort((np.arange(len(rows)), distances))
        if excluded is not None:
            order = order[order != excluded[i]]
        found.append((order[:k], distances[order[:k]]))
    return found


def check_sorted(found, queries, rows, k, ids, excluded=None):
    """The neighbors are those of the oracle, with padding after them."""
    expected = slow_search(queries, rows, k, excluded)
    ids = np.asarray(ids)
    for i, (order, distances) in enumerate(expected):
        count = found.counts[i]
        assert found.ids[i, :count].tolist() == ids[order].tolist()
        np.testing.assert_allclose(
            found.distances[i, :count], distances, 1e-5, 1e-7
        )
        assert np.isinf(found.distances[i, count:]).all()
        assert np.isin(found.ids[i, count:], ["", -1]).all()


def same(found, expected):
    for name in "ids", "labels", "distances", "counts":
        np.testing.assert_array_equal(
            getattr(found, name), getattr(expected, name), name
        )


def share(found, expected):
    """The share of the expected neighbors that was found."""
    pairs = zip(found.ids, expected.ids, strict=True)
    shared = [len(np.intersect1d(*pair)) for pair in pairs]
    return np.mean(shared) / expected.ids.shape[1]


def damaged_in_turn(folder):
    """Yields each file of a folder while its middle byte is damaged."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            damaged = bytearray(content)
            damaged[len(content) // 2] ^= 1
            path.write_bytes(bytes(damaged))
            yield path
            path.write_bytes(content)


@every_engine
def test_answers_are_those_of_sorting_all_distances(kind, tmp_path):
    rows, labels, ids, _ = columns(60)
    index = made(kind, tmp_path, rows, labels, ids)
    assert isinstance(index, SearchIndex)
    assert len(index) == 60 and index.embedding_size == 8
    queries = np.concatenate([random_rows(5, seed=1), rows[:3]])
    own = [None] * 4 + ["unknown"] + ids[:3]
    positions = [-1] * 5 + [0, 1, 2]
    for k in (1, 7, 100):
        for given, excluded in ((None, None), (own, positions)):
            found = index.search(queries, k, exclude_ids=given)
            assert found.ids.shape == found.labels.shape == (8, min(k, 60))
            check_sorted(found, queries, rows, k, ids, excluded)
            numbers = [int(one[1:] or -1) for one in found.ids.ravel()]
            expected = np.where(np.array(numbers) < 0, -1, labels[numbers])
            np.testing.assert_array_equal(found.labels.ravel(), expected)
    same(index.search(rows[2], 2), index.search(rows[2:3], 2))
    measured = search_recall(index, queries, np.arange(8) % 7, k=5)
    assert measured["recall"] == 1.0
    assert measured["map_at_r_exact"] == measured["map_at_r_approximate"] > 0


@every_engine
@pytest.mark.parametrize("times", [3, 90])
def test_equal_items_stay_in_order(kind, times, tmp_path):
    rows = np.repeat(random_rows(90 // times), times, axis=0)
    queries = random_rows(4, seed=1)
    found = made(kind, tmp_path, rows, None, np.arange(90)).search(queries, 10)
    check_sorted(found, queries, rows, 10, np.arange(90))


FILTERS = [
    ({"label": 3}, lambda i: i % 7 == 3),
    ({"label": {3, 4}}, lambda i: i % 7 in (3, 4)),
    ({"color": COLORS[2]}, lambda i: i % 3 == 2),
    ({"color": np.array(["red", "blue"])}, lambda i: i % 3 < 2),
    ({"year": slice(2002, 2005)}, lambda i: 2 <= i % 10 < 5),
    (
        {"year": slice(2005, None), "label": [0, 1]},
        lambda i: i % 10 >= 5 and i % 7 < 2,
    ),
    ({"id": ["i0005", "i0009"]}, lambda i: i in (5, 9)),
    ({"color": "black"}, lambda i: False),
    ({"label": []}, lambda i: False),
    ({}, lambda i: True),
]


@every_engine
@pytest.mark.parametrize("few", [0, 50_000])
def test_a_filter_limits_the_search(kind, few, tmp_path, monkeypatch):
    monkeypatch.setattr(approximate, "FEW_SELECTED", few)
    index = filled(kind, tmp_path)
    queries = random_rows(5, seed=1)
    for where, passes in FILTERS:
        chosen = np.array([i for i in range(60) if passes(i)], int)
        assert index.count(where) == len(chosen)
        found = index.search(queries, 8, where=where)
        ids = np.array([f"i{j:04}" for j in chosen], "U5")
        check_sorted(found, queries, random_rows(60)[chosen], 8, ids)


@every_engine
@pytest.mark.parametrize("storage", ["float32", "float16"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_changed_items_are_found_in_every_storage(
    kind, storage, is_mapped, tmp_path
):
    if kind is MilvusIndex:
        if storage != "float32" or is_mapped:
            pytest.skip("Milvus keeps float32")
        index = filled(kind, tmp_path)
    else:
        rows, labels, ids, facts = columns(60)
        index = kind(rows, labels, ids, attributes=facts, storage=storage)
    if is_mapped:
        index.save(tmp_path / "index")
        index = kind.load(tmp_path / "index", mmap=True)
    gone = [f"i{i:04}" for i in (0, 3, 17, 18, 59)]
    assert index.delete([*gone, "unknown"]) == 5
    assert index.delete("i0004") == 1 and index.delete([]) == 0
    new = random_rows(3, seed=5)
    facts = {"color": ["red"] * 3, "year": [1, 2, 3]}
    index.upsert(new, [1, 2, 3], ["i0001", "i0059", "new"], facts)
    left = [i for i in range(60) if f"i{i:04}" not in (*gone, "i0004", "i0001")]
    rows = np.concatenate([random_rows(60)[left], new])
    ids = [*(f"i{i:04}" for i in left), "i0001", "i0059", "new"]
    labels = [*(i % 7 for i in left), 1, 2, 3]
    fresh = ExactIndex(rows, labels, ids, storage=storage)
    assert len(index) == len(fresh) == index.count()
    assert index.count({"year": slice(None, 100)}) == 3
    queries = random_rows(6, seed=2)
    same(index.search(queries, 60), fresh.search(queries, 60))
    # Most items go, and the engine is built again.
    for one in (index, fresh):
        assert one.delete(ids[:50]) == 50
    same(index.search(queries, 9), fresh.search(queries, 9))
    assert index.delete(ids) == len(ids) - 50 and len(index) == 0
    index.upsert(queries[:1], [4], ["i0009"], {"color": ["red"], "year": [1]})
    assert index.search(queries[:1], 1).ids.tolist() == [["i0009"]]


def test_a_missing_engine_names_what_to_install(monkeypatch, tmp_path):
    for module, extra, make in (
        ("faiss", "faiss", FaissIndex),
        ("scann", "ann", ScannIndex),
        ("milvus_lite", "milvus", lambda: MilvusIndex(tmp_path / "a.db", "a")),
        ("pymilvus", "milvus", lambda: MilvusIndex(tmp_path / "a.db", "a")),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=rf"keras-gsp\[{extra}\]"):
            make()


@every_engine_in_memory
def test_an_empty_index_is_refused_until_it_is_filled(kind):
    index = kind(np.eye(3))
    index.delete([0, 1, 2])
    for one in (index, kind()):
        for call, arguments in (
            (one.search, [np.eye(3)]),
            (one.save, ["x"]),
            (search_recall, [one, np.eye(3), [1, 2, 3]]),
        ):
            with pytest.raises(RuntimeError, match="call `upsert` first"):
                call(*arguments)
    assert len(one) == 0 and one.embedding_size is None
    one.add(np.eye(3), ["a", "b", "c"])
    one.upsert(2 * np.eye(3)[:1], ["d"], [7])
    one.add(np.eye(3)[1:2] / 2, ["e"])
    found = one.search(np.eye(3)[:2], 2)
    assert found.labels.tolist() == [["a", "d"], ["b", "e"]]


@every_engine_in_memory
@pytest.mark.parametrize("mmap", [False, True])
def test_a_saved_index_answers_alike_and_can_be_changed(kind, mmap, tmp_path):
    match = MatchThreshold(1.0, 0.1, 0.9, 10, 10)
    index = filled(kind, tmp_path, match=match)
    index.delete(["i0003"])
    index.save(tmp_path / "index")
    loaded = kind.load(tmp_path / "index", mmap=mmap)
    assert loaded.match == match
    assert isinstance(loaded.gallery.parts[0].values, np.memmap) == mmap
    queries, facts = random_rows(9, seed=1), {"color": ["red"], "year": [1]}
    same(loaded.search(queries, 9), index.search(queries, 9))
    for one in (index, loaded):
        one.delete(["i0005"])
        one.upsert(queries[:1], [3], ["i0007"], facts)
    loaded.save(tmp_path / "again")
    again = kind.load(tmp_path / "again")
    for one in (loaded, again):
        same(one.search(queries, 9), index.search(queries, 9))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        index.save(tmp_path / "index")
    index.save(tmp_path / "index", overwrite=True)
    assert len(kind.load(tmp_path / "index")) == 59 - 1
    for _ in (
        () if mmap else damaged_in_turn(current_folder(tmp_path / "index"))
    ):
        with pytest.raises(ValueError, match="damaged|changed|missing"):
            kind.load(tmp_path / "index")


@every_engine_in_memory
def test_other_folders_are_refused(kind, tmp_path):
    index = filled(kind, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        kind.load(tmp_path)
    index.save(tmp_path / "index")
    path = current_folder(tmp_path / "index") / "index.json"
    facts = json.loads(path.read_text())
    for change, message in (
        ({"kind": "other"}, f"kind {index.kind!r}.*kind 'other'"),
        ({"format": 3}, "in format 3"),
        ({"items": 59}, r"\(59, 8\)"),
        ({"attributes": ["../ids"]}, "../ids"),
    ):
        # Whoever changes a file on purpose can change its checksum too.
        path.write_text(json.dumps(facts | change))
        write_checksums(path.parent)
        with pytest.raises(ValueError, match=message):
            kind.load(path.parent)
    path.write_text(json.dumps(facts))
    for name, values, message in (
        ("labels", np.zeros(60, "uint64"), "labels must be int64.*not uint64"),
        ("ids", np.array([{}] * 60, object), "never loaded"),
    ):
        np.save(path.parent / f"{name}.npy", values, allow_pickle=True)
        write_checksums(path.parent)
        with pytest.raises(ValueError, match=message):
            kind.load(path.parent)
