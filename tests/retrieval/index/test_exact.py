"""ExactIndex: blocks, storage, memory maps."""

import numpy as np
import pytest

from keras_gsp.retrieval import ExactIndex
from keras_gsp.storage.whole import current_folder
from tests.retrieval.index.test_indexes import (
    check_sorted,
    filled,
    random_rows,
    same,
)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_near_ties_have_their_exact_order(scale):
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(20, 64)).astype("float32") * scale
    # Twelve rows whose distances to the first query are clear, while their
    # products with it differ by less than rounding.
    lengths = 1e-2 * scale * (1 + 1e-3 * rng.permutation(12))
    near = queries[0] + lengths[:, None] * np.eye(64)[:12]
    rows = np.concatenate([rng.normal(size=(400, 64)) * scale, near])
    rows = rows.astype("float32")
    found = ExactIndex(rows).search(queries, k=3)
    check_sorted(found, queries, rows, 3, np.arange(412))
    # Also near duplicates far from the origin.
    rows = scale * (np.full(8, 1000.0, "float32") + random_rows(60, 8))
    rows = rows.astype("float32")
    found = ExactIndex(rows).search(rows[:5], k=60)
    check_sorted(found, rows[:5], rows, 60, np.arange(60))
    assert (found.distances[:, 0] == 0.0).all()


@pytest.mark.parametrize(
    ("storage", "error", "nbytes"),
    [("float32", 0.0, 24), ("float16", 5e-4, 12)],
)
def test_storage_trades_digits_for_memory(storage, error, nbytes):
    rows = random_rows(300, 6) * np.logspace(-3, 3, 300)[:, None]
    rows[7] = 0.0
    index = ExactIndex(rows, storage=storage)
    kept = index.gallery.embeddings
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (np.abs(kept - rows.astype("f4")) <= error * largest).all()
    assert index.gallery.parts[0].values.nbytes == 300 * nbytes
    # The search is exact for the rounded embeddings.
    check_sorted(index.search(rows[:5], 6), rows[:5], kept, 6, np.arange(300))


def test_a_mapped_index_does_not_read_its_vectors(tmp_path):
    filled(ExactIndex, None).save(tmp_path / "index")
    path = current_folder(tmp_path / "index") / "embeddings.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    assert len(ExactIndex.load(tmp_path / "index", mmap=True)) == 60
    with pytest.raises(ValueError, match=r"embeddings\.npy: changed"):
        ExactIndex.load(tmp_path / "index")


def test_a_refused_part_adds_nothing():
    rows = random_rows(4, 6)
    index = ExactIndex(rows, list("abcd"))
    for ids, error, message in [
        ([4, 5, 6, 3], ValueError, "example 3"),
        (list("wxyz"), TypeError, "`ids` must be numbers.*strings"),
    ]:
        with pytest.raises(error, match=message):
            index.add(rows, list("abcd"), ids)
    assert len(index) == 4 == len(index.gallery.labels)
    index.add(rows, list("efgh"))
    assert index.search(rows[:1], 2).ids.tolist() == [[0, 4]]
    # Default ids are never given twice.
    index.delete([7])
    index.add(rows[:1], ["i"])
    assert index.gallery.ids[-1] == 8


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("replaces", [False, True])
def test_single_upserts_end_as_one(step, replaces):
    rows = random_rows(600, 6)
    order = np.random.default_rng(1).permutation(600)
    ids = np.array([f"photo {i:04d}" for i in order])
    if replaces:
        ids[300:] = ids[:300]
    single, seen = ExactIndex(), []
    for start in range(0, 600, step):
        some = slice(start, start + step)
        single.upsert(rows[some], ids[some], ids[some], {"n": ids[some]})
        if start % 60 == 0:
            # What a reader has does not change.
            gallery = single.gallery
            seen.append((gallery, gallery.ids.tolist(), gallery.embeddings))
    for gallery, known, embeddings in seen:
        assert gallery.ids.tolist() == known
        np.testing.assert_array_equal(gallery.embeddings, embeddings)
    left = slice(300 * replaces, None)
    whole = ExactIndex(rows[left], ids[left], ids[left])
    same(single.search(rows[::7], 5), whole.search(rows[::7], 5))
    assert single.ids().tolist() == ids[left].tolist()
    assert single.items(ids[left][::-1])[2].tolist() == ids[left][::-1].tolist()
    # As few parts as make a search as fast, and orders of ids that double.
    assert len(single.gallery.parts) == 1 and len(single.gallery.by_id) < 10


def test_one_long_string_widens_no_others(tmp_path):
    count, long = 20_000, "y" * 5000
    texts = ["x"] * (count - 1) + [long]
    ids = [f"i{i}" for i in range(count - 1)] + [long]
    rows = random_rows(count, 2)
    for given in (texts, np.array(texts, object)):
        index = ExactIndex(rows, given, ids, attributes={"caption": given})
        for column in index.gallery.columns.values():
            assert column.content.nbytes + column.ends.nbytes < 1e6
    index.save(tmp_path / "index", overwrite=True)
    files = tmp_path.rglob("*.npy")
    assert sum(file.stat().st_size for file in files) < 2e6
    for saved in (index, ExactIndex.load(tmp_path / "index")):
        assert saved.ids().tolist() == ids and saved.ids().nbytes < 1e6
        assert saved.count({"caption": long}) == saved.count({"id": long}) == 1
        found = saved.search(rows[-1], 2)
        assert found.labels[0, 0] == found.ids[0, 0] == long
        assert saved.items([long])[1].tolist() == [long]


def test_ids_are_told_apart_that_share_a_hash(monkeypatch):
    monkeypatch.setattr(
        "keras_gsp.retrieval.index.columns._hashes",
        lambda content, ends: np.diff(ends, prepend=0).astype("uint64"),
    )
    rows, ids = random_rows(6), ["b", "a", "cc", "c", "aa", "d"]
    index = ExactIndex(rows, ids, ids)
    assert index.items(["d", "e", "aa", "a", "eee", ""])[2].tolist() == [
        "d",
        "aa",
        "a",
    ]
    assert index.count({"label": ["a", "cc", "e"]}) == 2
    assert index.delete(["a", "e", "d"]) == 2
    assert index.items(ids)[2].tolist() == ["b", "cc", "c", "aa"]
