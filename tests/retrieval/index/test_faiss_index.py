"""FaissIndex: factories, codes with exact re-scoring, errors."""

import warnings

import numpy as np
import pytest

from keras_gsp.retrieval import ExactIndex, FaissIndex, search_recall
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import current_folder
from tests.retrieval.index.test_indexes import clustered, same, share

pytest.importorskip("faiss")
ROWS, LABELS = clustered(1500)
QUERIES, CLASSES = clustered(40, seed=1)

# Factory, search parameters, recall at least; codes come last.
FACTORIES = [
    ("Flat", None, 1.0),
    ("HNSW32", "efSearch=100", 0.98),
    ("IVF16,Flat", "nprobe=8", 0.95),
    ("PCA16,Flat", None, 0.95),
    ("LSHr", None, 0.8),
    ("SQ8", None, 0.99),
    ("RaBitQ", None, 0.95),
    ("IVF16,RaBitQ", "nprobe=8", 0.9),
]


@pytest.mark.parametrize(("factory", "parameters", "recall"), FACTORIES)
def test_factories_find_most_neighbors_with_exact_distances(
    factory, parameters, recall, tmp_path
):
    options = {"factory": factory, "parameters": parameters}
    index = FaissIndex(ROWS, LABELS, **options)
    assert search_recall(index, QUERIES, CLASSES)["recall"] >= recall
    found = index.search(QUERIES, 10)
    differences = ROWS[found.indices] - QUERIES[:, None]
    np.testing.assert_allclose(
        found.distances, np.linalg.norm(differences, axis=2), 1e-6
    )
    assert (np.diff(found.distances, axis=1) >= 0).all()
    index.save(tmp_path / "index")
    assert not list((tmp_path / "index").rglob("*.pkl"))
    loaded = FaissIndex.load(tmp_path / "index", mmap=True)
    assert loaded.factory == factory and loaded.parameters == parameters
    same(loaded.search(QUERIES, 10), found)
    # Items near others, and one far away, added to the trained index.
    for one in (index, loaded):
        one.upsert(ROWS[:1] + 90, [3], [7])
        assert one.search(ROWS[:1] + 90, 1).ids.tolist() == [[7]]
        assert one.delete([7, 8]) == 2
        assert 7 not in one.search(ROWS[:1] + 90, 20).ids


def test_more_rescoring_finds_more_and_a_low_recall_is_warned_of():
    def recall(rescore):
        index = FaissIndex(ROWS, LABELS, factory="LSH", rescore=rescore)
        return search_recall(index, QUERIES, CLASSES)["recall"]

    with pytest.warns(UserWarning, match="finds .*Raise `nprobe`"):
        low = recall(30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        high = recall(1500)
    assert low < 0.98 < high == 1.0
    graph = {"factory": "HNSW4", "parameters": "efSearch=16"}
    index = FaissIndex(ROWS[:60], **graph)
    with pytest.warns(UserWarning, match="finds .*`efSearch`"):
        index.upsert(ROWS[60:], None, np.arange(60, 1500))  # it grows


@pytest.mark.parametrize("factory", ["IVF256,Flat", "IVF256,RaBitQ"])
def test_too_few_items_to_train_are_searched_exactly(factory, tmp_path):
    index = FaissIndex(ROWS[:1000], factory=factory)
    exact = ExactIndex(ROWS[:1000])
    with pytest.warns(UserWarning, match="200 items are too few.*clusters"):
        for one in (index, exact):
            assert one.delete(range(800)) == 800
    same(index.search(QUERIES, 5), exact.search(QUERIES, 5))
    index.save(tmp_path / "index")
    loaded = FaissIndex.load(tmp_path / "index")
    for one in (index, loaded, exact):
        one.add(ROWS[:20], ids=range(2000, 2020))
    for one in (index, loaded):
        same(one.search(QUERIES, 5), exact.search(QUERIES, 5))
    # Enough again: the engine is back, and saved.
    loaded.add(ROWS[:700], ids=range(3000, 3700))
    assert loaded._engine.index.ntotal == 920
    loaded.save(tmp_path / "index", overwrite=True)
    assert len(FaissIndex.load(tmp_path / "index")) == 920


def test_an_index_of_shards_builds_its_engine_once(monkeypatch):
    monkeypatch.setattr(f"{FaissIndex.__module__}.TRAINING_ROWS", 700)
    options = {"factory": "IVF8,SQ8", "parameters": "nprobe=8", "rescore": 50}
    labels, ids = np.arange(1500) % 3, np.char.mod("i%d", np.arange(1500))
    shards = (
        (ROWS[some], labels[some], ids[some], {"row": np.arange(1500)[some]})
        for some in np.split(np.arange(1500), [100, 101, 1400])
    )
    index = FaissIndex.from_shards(shards, storage="float16", **options)
    whole = FaissIndex(
        ROWS, labels, ids, attributes={"row": range(1500)}, **options
    )
    assert index.search(ROWS[7], 1).ids == "i7"
    assert index._num_checked == len(index._engine) == len(whole)
    where = {"row": slice(700)}
    for one in (index, whole):
        assert one.count(where) == 700 and one.count({"label": 1}) == 500
    exact = ExactIndex(ROWS, ids=ids).search(QUERIES, 5)
    assert share(index.search(QUERIES, 5), exact) > 0.98
    with pytest.raises(ValueError, match="no items"):
        FaissIndex.from_shards([])


def test_an_engine_of_a_mapped_gallery_shares_its_items(tmp_path):
    ExactIndex(ROWS, LABELS, storage="float16").save(tmp_path / "exact")
    exact = ExactIndex.load(tmp_path / "exact", mmap=True)
    options = {"factory": "IVF8,Flat", "parameters": "nprobe=8"}
    index = FaissIndex.from_index(exact, **options)
    assert index.gallery is exact.gallery
    same(index.search(QUERIES, 5), exact.search(QUERIES, 5))
    assert index.delete(range(9)) == 9 and len(exact) == 1500
    index.save(tmp_path / "faiss")
    loaded = FaissIndex.load(tmp_path / "faiss")
    same(loaded.search(QUERIES, 5), index.search(QUERIES, 5))


def test_codes_of_an_index_that_grows_are_learned_again(tmp_path):
    index = FaissIndex(factory="SQ8")
    for i in range(40):  # the codes of one item are all alike
        index.upsert(ROWS[i : i + 1], None, [i])
    exact = ExactIndex(ROWS[:40]).search(QUERIES, 10)
    assert share(index.search(QUERIES, 10), exact) == 1.0
    index.save(tmp_path / "index")
    index = FaissIndex.load(tmp_path / "index")
    index.upsert(99 * ROWS[40:], None, np.arange(40, 1500))
    exact = ExactIndex.from_index(index).search(99 * QUERIES, 10)
    assert share(index.search(99 * QUERIES, 10), exact) > 0.98


def test_k_groups_are_found_beyond_the_clusters_that_are_looked_into():
    with pytest.warns(UserWarning, match="Raise `nprobe`"):
        index = FaissIndex(ROWS, LABELS, factory="IVF64,Flat")
    found = index.search(QUERIES[:5], 20, group_by="label")
    assert (found.counts == 20).all()
    assert all(len(set(row)) == 20 for row in found.groups.tolist())
    assert (index.search(QUERIES[:5], 300).counts < 300).all()


def test_codes_of_parts_need_a_size_that_they_divide():
    index = FaissIndex(factory="PQ12x3")
    index.add(ROWS[:50, :24])
    expected = ExactIndex(ROWS[:50, :24]).search(ROWS[:9, :24], 3)
    same(index.search(ROWS[:9, :24], 3), expected)


def test_an_unreadable_engine_file_is_refused(tmp_path):
    index = FaissIndex(ROWS[:50])
    index.save(tmp_path / "index")
    file = current_folder(tmp_path / "index") / "faiss.index"
    content = file.read_bytes()
    FaissIndex(ROWS[:49]).save(tmp_path / "other")
    other = current_folder(tmp_path / "other") / "faiss.index"
    for new, message in (
        (content[: len(content) // 2], "must be the file that faiss wrote"),
        (b"", "must be the file that faiss wrote"),
        (other.read_bytes(), "49 and 50 items"),
    ):
        file.write_bytes(new)
        write_checksums(file.parent)
        with pytest.raises(ValueError, match=message):
            FaissIndex.load(tmp_path / "index")
