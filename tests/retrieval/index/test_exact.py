"""ExactIndex against sorting all distances in float64."""

import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval.index import exact, gallery
from keras_gsp.retrieval.index.exact import ExactIndex


def random_rows(count, size=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, size)).astype("float32")


def slow_search(queries, rows, k, excluded=None):
    """(indices, distances) of each query, one sort at a time."""
    found = []
    for i, query in enumerate(np.asarray(queries, "float64")):
        distances = np.linalg.norm(rows.astype("float64") - query, axis=1)
        order = np.lexsort((np.arange(len(rows)), distances))
        if excluded is not None:
            order = order[order != excluded[i]]
        found.append((order[:k], distances[order[:k]]))
    return found


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("k", [1, 5, 200])
def test_equals_sorting_all_distances(num_shards, k, monkeypatch):
    monkeypatch.setattr(exact, "SHARD_ROWS", 17)
    monkeypatch.setattr(exact, "QUERY_ROWS", 4)
    rows, queries = random_rows(100), random_rows(9, seed=1)
    index = ExactIndex()
    for shard in np.array_split(rows, num_shards):
        index.add(shard)
    found = index.search(queries, k)
    for i, (order, distances) in enumerate(slow_search(queries, rows, k)):
        np.testing.assert_array_equal(found.indices[i], order)
        np.testing.assert_allclose(found.distances[i], distances, rtol=1e-6)
    assert found.counts.tolist() == [min(k, 100)] * 9


def test_ties_are_broken_by_index_across_shards(monkeypatch):
    monkeypatch.setattr(exact, "SHARD_ROWS", 50)
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(4, 33)).astype("float32")
    rows = distinct[rng.integers(4, size=903)]
    found = ExactIndex(rows).search(distinct, k=300)
    expected = slow_search(distinct, rows, 300)
    for i, (order, _) in enumerate(expected):
        np.testing.assert_array_equal(found.indices[i], order)


def test_near_duplicates_far_from_the_origin_keep_their_order():
    offset = np.full(8, 1000.0, "float32")
    rows = offset + random_rows(60, 8)
    found = ExactIndex(rows).search(rows[:5], k=60)
    for i, (order, _) in enumerate(slow_search(rows[:5], rows, 60)):
        np.testing.assert_array_equal(found.indices[i], order)
    assert (found.distances[:, 0] == 0.0).all()


def test_a_query_can_leave_out_its_own_image_by_id():
    rows = random_rows(20)
    ids = np.array([f"img{i}" for i in range(20)])
    index = ExactIndex(rows, ids=ids)
    found = index.search(rows[:4], k=3, exclude_ids=ids[:4])
    expected = slow_search(rows[:4], rows, 3, excluded=range(4))
    for i, (order, _) in enumerate(expected):
        np.testing.assert_array_equal(found.ids[i], ids[order])
    kept = index.search(rows[:2], k=1, exclude_ids=[None, "unknown"])
    assert kept.ids[:, 0].tolist() == ["img0", "img1"]


def test_more_than_the_gallery_returns_what_exists_with_the_count():
    index = ExactIndex(random_rows(3), labels=[7, 8, 9], ids=list("abc"))
    found = index.search(random_rows(2, seed=1), 10, exclude_ids=["b", None])
    assert found.ids.shape == (2, 3)
    assert found.counts.tolist() == [2, 3]
    assert found.ids[0, 2] == "" and found.labels[0, 2] == -1
    assert found.indices[0, 2] == -1 and np.isinf(found.distances[0, 2])


def test_one_query_tensors_and_lists_are_taken():
    rows = random_rows(10)
    index = ExactIndex(keras.ops.convert_to_tensor(rows))
    expected = index.search(rows[2:3], k=2).indices
    for query in (rows[2], rows[2].tolist(), keras.ops.array(rows[2])):
        np.testing.assert_array_equal(index.search(query, 2).indices, expected)


def test_builds_from_an_encoder_and_a_data_set(monkeypatch):
    monkeypatch.setattr(gallery, "SHARD_ROWS", 8)
    images = np.random.default_rng(0).normal(size=(21, 4)).astype("float32")
    labels = np.arange(21) % 3
    ids = [f"{i}.jpg" for i in range(21)]
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
    index = gsp.retrieval.ExactIndex.from_encoder(
        encoder, (images, labels), ids=ids, batch_size=4
    )
    assert len(index.gallery.shards) > 1
    embeddings = encoder.predict(images, verbose=0)
    np.testing.assert_allclose(index.gallery.embeddings, embeddings, 1e-5, 1e-6)
    found = index.search(embeddings, k=1)
    assert found.ids[:, 0].tolist() == ids
    assert found.labels[:, 0].tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("labels", "ids"),
    [(None, None), (list("aab"), list("xyz")), ([5, 6, 6], [9, 8, 7])],
)
def test_saved_and_loaded_index_answers_alike(tmp_path, labels, ids):
    index = ExactIndex(random_rows(3), labels, ids)
    index.save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index")
    one, two = index.search(random_rows(2), 2), loaded.search(random_rows(2), 2)
    for name in ("ids", "labels", "distances", "indices", "counts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert {path.suffix for path in (tmp_path / "index").iterdir()} == {
        ".npy",
        ".json",
    }


def test_an_existing_index_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "index"
    ExactIndex(random_rows(3)).save(path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ExactIndex(random_rows(4)).save(path)
    assert len(ExactIndex.load(path)) == 3
    ExactIndex(random_rows(4)).save(path, overwrite=True)
    assert len(ExactIndex.load(path)) == 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "index"
    index = ExactIndex(random_rows(3))
    index.save(path)
    monkeypatch.setattr(json, "dumps", lambda *_, **__: 1 / 0)
    for target in (path, tmp_path / "other"):
        with pytest.raises(ZeroDivisionError):
            index.save(target, overwrite=True)
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]
    assert len(ExactIndex.load(path)) == 3


def test_loading_refuses_pickles_other_kinds_and_other_shapes(tmp_path):
    path = tmp_path / "index"
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        ExactIndex.load(path)
    ExactIndex(random_rows(3)).save(path)
    facts = json.loads((path / "index.json").read_text())

    def rewrite(**changes):
        (path / "index.json").write_text(json.dumps(facts | changes))

    rewrite(kind="scann")
    with pytest.raises(ValueError, match="kind 'scann'"):
        ExactIndex.load(path)
    rewrite(embedding_size=9)
    with pytest.raises(ValueError, match=r"\(3, 9\).*\(3, 6\)"):
        ExactIndex.load(path)
    rewrite()
    np.save(path / "ids.npy", np.array([{}, 1, 2], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"never loaded.*ids\.npy"):
        ExactIndex.load(path)


def nan_rows():
    rows = random_rows(4)
    rows[1, 2] = np.nan
    return rows


ROWS = random_rows(4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((nan_rows(),), ValueError, "1 of 4 rows.*row 1"),
        ((ROWS[:0],), ValueError, r"shape \(0, 6\)"),
        ((ROWS[0],), ValueError, r"shape \(6,\)"),
        ((ROWS.astype("float64") * 1e300,), ValueError, "4 of 4 rows"),
        ((ROWS, [1, 2]), ValueError, r"`labels`.*shape \(2,\)"),
        ((ROWS, None, [1, 2]), ValueError, r"`ids`.*shape \(2,\)"),
        ((ROWS, None, list("abca")), ValueError, "twice, for example 'a'"),
        ((ROWS, None, [0.5, 1.0, 2.0, 3.0]), TypeError, "float64"),
    ],
)
def test_bad_galleries_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ExactIndex(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ROWS[:, :3],), ValueError, "Received: 3, the gallery has 6"),
        ((ROWS, list("abcd"), [4, 5, 6, 3]), ValueError, "example 3"),
        ((ROWS, list("abcd"), list("wxyz")), TypeError, "`ids`.*int64"),
        ((ROWS, [1, 2, 3, 4]), TypeError, "`labels`.*<U1"),
    ],
)
def test_a_refused_shard_adds_nothing(arguments, error, message):
    index = ExactIndex(ROWS, list("abcd"))
    with pytest.raises(error, match=message):
        index.add(*arguments)
    assert len(index) == 4 == len(index.gallery.labels)
    index.add(ROWS, list("efgh"))
    assert index.search(ROWS[:1], 2).ids.tolist() == [[0, 4]]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((nan_rows(),), {}, ValueError, "`queries` must be finite"),
        ((ROWS[:, :5],), {}, ValueError, r"6. Received: shape \(4, 5\)"),
        ((ROWS, 0), {}, ValueError, "k=0"),
        ((ROWS, 1.5), {}, ValueError, "k=1.5"),
        ((ROWS, True), {}, ValueError, "k=True"),
        ((ROWS,), {"exclude_ids": [1]}, ValueError, "1 ids for 4 queries"),
        ((ROWS,), {"exclude_ids": list("abcd")}, TypeError, "int. Received"),
    ],
)
def test_bad_searches_are_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        ExactIndex(ROWS).search(*arguments, **options)


def test_an_empty_index_says_so(tmp_path):
    with pytest.raises(RuntimeError, match="call `add` first"):
        ExactIndex().search(ROWS)
    with pytest.raises(RuntimeError, match="call `add` first"):
        ExactIndex().save(tmp_path / "index")


def test_ids_must_match_the_images(tmp_path):
    encoder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    for ids in ([1, 2, 3], [1, 2, 3, 4, 5]):
        with pytest.raises(ValueError, match="ids"):
            ExactIndex.from_encoder(encoder, (ROWS, [0, 1, 2, 3]), ids=ids)
