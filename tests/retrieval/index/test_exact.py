"""ExactIndex against sorting all distances in float64."""

import hashlib
import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval.index import exact, gallery, host_scan
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.nearest import rows_alike


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


@pytest.fixture(params=["host", "device"])
def engine(request, monkeypatch):
    """Both ways to search, in small blocks."""
    is_device = request.param == "device"
    monkeypatch.setattr(exact, "_has_device", lambda: is_device)
    monkeypatch.setattr(exact, "SHARD_ROWS", 17)
    monkeypatch.setattr(exact, "QUERY_ROWS", 4)
    monkeypatch.setattr(host_scan, "BLOCK_ROWS", 17)
    monkeypatch.setattr(host_scan, "QUERY_ROWS", 4)


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("k", [1, 5, 200])
def test_equals_sorting_all_distances(num_shards, k, engine):
    rows, queries = random_rows(100), random_rows(9, seed=1)
    index = ExactIndex()
    for shard in np.array_split(rows, num_shards):
        index.add(shard)
    found = index.search(queries, k)
    for i, (order, distances) in enumerate(slow_search(queries, rows, k)):
        np.testing.assert_array_equal(found.indices[i], order)
        np.testing.assert_allclose(found.distances[i], distances, rtol=1e-6)
    assert found.counts.tolist() == [min(k, 100)] * 9


@pytest.fixture
def three_threads(monkeypatch):
    """Searches as on three processors, however small they are."""
    monkeypatch.setattr(host_scan, "num_processors", lambda: 3)
    monkeypatch.setattr(host_scan, "THREAD_PRODUCTS", 1)


@pytest.mark.parametrize("is_device", [False, True])
@pytest.mark.parametrize("block", [50, 4096])
def test_ties_are_broken_by_index_across_shards(is_device, block, monkeypatch):
    monkeypatch.setattr(exact, "_has_device", lambda: is_device)
    monkeypatch.setattr(exact, "SHARD_ROWS", block)
    monkeypatch.setattr(host_scan, "BLOCK_ROWS", block)
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(4, 33)).astype("float32")
    rows = distinct[rng.integers(4, size=903)]
    found = ExactIndex(rows).search(distinct, k=300)
    expected = slow_search(distinct, rows, 300)
    for i, (order, _) in enumerate(expected):
        np.testing.assert_array_equal(found.indices[i], order)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65])
def test_a_shard_is_filled_up_with_rows_near_to_nothing(count):
    rows = random_rows(count, 5)
    halves = np.sum(np.square(rows), axis=1) / 2
    filled, far = rows_alike(rows, halves)
    assert len(filled) == len(far) == -(-count // 64) * 64
    np.testing.assert_array_equal(filled[:count], rows)
    np.testing.assert_array_equal(far[:count], halves)
    assert not filled[count:].any() and np.isinf(far[count:]).all()


def test_fewer_than_asked_for_pass_a_filter_of_a_filled_shard(engine):
    """What fills a shard is no item: it is never found."""
    rows, queries = random_rows(40), random_rows(3, seed=1)
    even = np.arange(40) % 2 == 0
    index = ExactIndex(rows, attributes={"even": even})
    found = index.search(queries, 30, where={"even": True})
    assert found.counts.tolist() == [20] * 3
    for i, (order, _) in enumerate(slow_search(queries, rows[::2], 20)):
        np.testing.assert_array_equal(found.indices[i, :20], 2 * order)
        assert (found.indices[i, 20:] == -1).all()


@pytest.mark.parametrize("is_device", [False, True])
@pytest.mark.parametrize("k", [10, 200])
def test_many_rows_at_once_are_searched_like_few(is_device, k, monkeypatch):
    monkeypatch.setattr(exact, "_has_device", lambda: is_device)
    monkeypatch.setattr(host_scan, "THREAD_PRODUCTS", 1000)
    rows, queries = random_rows(9001, 5), random_rows(40, 5, seed=1)
    found = ExactIndex(rows).search(queries, k)
    for i, (order, _) in enumerate(slow_search(queries, rows, k)):
        np.testing.assert_array_equal(found.indices[i], order)


@pytest.mark.parametrize("block", [50, 300, 4096])
def test_threads_find_what_one_finds(block, three_threads, monkeypatch):
    monkeypatch.setattr(host_scan, "BLOCK_ROWS", block)
    rng = np.random.default_rng(0)
    # Equal rows too, which other threads may have seen before.
    rows = random_rows(500, 5)[rng.integers(500, size=3001)]
    queries = random_rows(40, 5, seed=1)
    index = ExactIndex(rows, attributes={"even": np.arange(3001) % 2 == 0})
    for where in (None, {"even": True}):
        found = index.search(queries, 30, where=where)
        step = 1 if where is None else 2
        expected = slow_search(queries, rows[::step], 30)
        for i, (order, _) in enumerate(expected):
            np.testing.assert_array_equal(found.indices[i], step * order)


def test_equal_rows_pass_no_bound_twice(three_threads, monkeypatch):
    monkeypatch.setattr(host_scan, "BLOCK_ROWS", 260)
    passed = []
    places = host_scan.set_places
    monkeypatch.setattr(
        host_scan,
        "set_places",
        lambda found: passed.append(found.sum()) or places(found),
    )
    found = ExactIndex(np.ones((5200, 4), "float32")).search(np.eye(4)[:2], 5)
    assert found.indices.tolist() == [[0, 1, 2, 3, 4]] * 2
    # The first block of a thread passes whole, and those that a thread looks
    # at before it has as many of its own.
    assert sum(passed) <= 3 * 2 * 2 * 260


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_spare_candidates_are_looked_at_where_rounding_could_matter(scale):
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(20, 64)).astype("float32") * scale
    # Twelve rows whose distances to the first query are clear, while their
    # products with it differ by less than is rounded; all others are clear.
    lengths = 1e-2 * scale * (1 + 1e-3 * rng.permutation(12))
    near = queries[0] + lengths[:, None] * np.eye(64)[:12]
    rows = np.concatenate([rng.normal(size=(400, 64)) * scale, near])
    rows = rows.astype("float32")
    found = ExactIndex(rows).search(queries, k=3)
    for i, (order, _) in enumerate(slow_search(queries, rows, 3)):
        np.testing.assert_array_equal(found.indices[i], order)
    origin = np.zeros(64, "float32")
    halves = np.square(rows).sum(axis=1) / 2
    blocks = [(rows, np.arange(len(rows)))]
    kept = host_scan.nearest_on_host(queries, blocks, origin, 20, halves, 3)
    assert 12 <= kept.shape[1] < 20
    clear = host_scan.nearest_on_host(
        queries[1:], blocks, origin, 20, halves, 3
    )
    assert clear.shape[1] < 12
    np.testing.assert_array_equal(kept[1:, :3], clear[:, :3])


def test_near_duplicates_far_from_the_origin_keep_their_order():
    offset = np.full(8, 1000.0, "float32")
    rows = offset + random_rows(60, 8)
    found = ExactIndex(rows).search(rows[:5], k=60)
    for i, (order, _) in enumerate(slow_search(rows[:5], rows, 60)):
        np.testing.assert_array_equal(found.indices[i], order)
    assert (found.distances[:, 0] == 0.0).all()


def test_a_query_can_leave_out_its_own_image_by_id(engine):
    rows = random_rows(20)
    ids = np.array([f"img{i}" for i in range(20)])
    index = ExactIndex(rows, ids=ids)
    found = index.search(rows[:4], k=3, exclude_ids=ids[:4])
    expected = slow_search(rows[:4], rows, 3, excluded=range(4))
    for i, (order, _) in enumerate(expected):
        np.testing.assert_array_equal(found.ids[i], ids[order])
    kept = index.search(rows[:2], k=1, exclude_ids=[None, "unknown"])
    assert kept.ids[:, 0].tolist() == ["img0", "img1"]


def test_more_than_the_gallery_returns_what_exists_with_the_count(engine):
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
    rewrite(added=7)
    with pytest.raises(ValueError, match=r"index\.json.*was changed"):
        ExactIndex.load(path)
    rewrite()
    np.save(path / "ids.npy", np.array([{}, 1, 2], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"ids\.npy.*damaged"):
        ExactIndex.load(path)
    # Whoever exchanges a file on purpose can exchange its checksum too.
    digest = hashlib.sha256((path / "ids.npy").read_bytes()).hexdigest()
    rewrite(sha256=facts["sha256"] | {"ids.npy": digest})
    with pytest.raises(ValueError, match=r"never loaded.*ids\.npy"):
        ExactIndex.load(path)


COLORS = np.array(["red", "blue", "green"])


def filled(count=60, **options):
    attributes = {
        "color": COLORS[np.arange(count) % 3],
        "year": 2000 + np.arange(count) % 10,
    }
    labels = np.arange(count) % 7
    ids = [f"i{i}" for i in range(count)]
    rows = random_rows(count)
    return ExactIndex(rows, labels, ids, attributes=attributes, **options)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ({"label": 3}, lambda i: i % 7 == 3),
        ({"label": {3, 4}}, lambda i: i % 7 in (3, 4)),
        ({"color": "red"}, lambda i: i % 3 == 0),
        ({"color": np.array(["red", "blue"])}, lambda i: i % 3 < 2),
        ({"year": slice(2002, 2005)}, lambda i: 2 <= i % 10 < 5),
        (
            {"year": slice(2005, None), "label": [0, 1]},
            lambda i: i % 10 >= 5 and i % 7 < 2,
        ),
        ({"id": ["i5", "i9"]}, lambda i: i in (5, 9)),
        ({"color": "black"}, lambda i: False),
        ({"label": []}, lambda i: False),
        ({}, lambda i: True),
    ],
)
def test_a_filter_searches_what_passes_alone(where, passes, engine):
    index = filled()
    chosen = np.array([i for i in range(60) if passes(i)], int)
    assert index.count(where) == len(chosen)
    found = index.search(random_rows(5, seed=1), 8, where=where)
    rows = random_rows(60)[chosen]
    expected = slow_search(random_rows(5, seed=1), rows, 8)
    for i, (order, _) in enumerate(expected):
        count = found.counts[i]
        assert count == len(order)
        assert found.indices[i, :count].tolist() == chosen[order].tolist()


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ({"size": 3}, ValueError, r"\['color', 'id', 'label', 'year'\]"),
        ({"label": "3"}, TypeError, "'label' with numbers"),
        ({"color": [3]}, TypeError, "'color' with strings. Received: 3"),
        ({"year": slice(1, 9, 2)}, ValueError, "no step"),
    ],
)
def test_bad_filters_are_refused(where, error, message):
    with pytest.raises(error, match=message):
        filled().search(random_rows(1), 1, where=where)


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_deleted_and_replaced_items_are_as_if_never_there(
    storage, is_mapped, tmp_path, engine
):
    index = filled(storage=storage)
    if is_mapped:
        index.save(tmp_path / "index")
        index = ExactIndex.load(tmp_path / "index", mmap=True)
    gone = [f"i{i}" for i in (0, 3, 17, 18, 59)]
    assert index.delete([*gone, "unknown"]) == 5
    assert index.delete("i4") == 1 and index.delete([]) == 0
    new = random_rows(3, seed=5)
    columns = {"color": ["red"] * 3, "year": [1, 2, 3]}
    index.upsert(new, [1, 2, 3], ["i1", "i59", "new"], columns)
    left = [i for i in range(60) if f"i{i}" not in (*gone, "i4", "i1")]
    fresh = ExactIndex(
        np.concatenate([random_rows(60)[left], new]),
        [*(i % 7 for i in left), 1, 2, 3],
        [*(f"i{i}" for i in left), "i1", "i59", "new"],
        storage=storage,
    )
    assert len(index) == len(fresh) == index.count()
    assert index.count({"year": slice(None, 100)}) == 3
    queries = random_rows(6, seed=2)
    for one in (index, fresh):
        one.gallery._low = one.gallery._high = np.zeros(6, "float32")
    found, expected = index.search(queries, 60), fresh.search(queries, 60)
    for name in ("ids", "labels", "distances", "indices", "counts"):
        np.testing.assert_array_equal(
            getattr(found, name), getattr(expected, name)
        )
    index.save(tmp_path / "again")
    loaded = ExactIndex.load(tmp_path / "again")
    np.testing.assert_array_equal(loaded.search(queries, 60).ids, expected.ids)
    loaded.add(random_rows(1), [0], ["x"], {"color": ["a"], "year": [0]})
    assert len(loaded) == len(index) + 1


def test_everything_can_be_deleted_and_added_again():
    index = ExactIndex(random_rows(4))
    assert index.delete([0, 1, 2, 3]) == 4 and len(index) == 0
    with pytest.raises(RuntimeError, match="at least one item"):
        index.search(random_rows(1))
    index.add(random_rows(2))
    assert index.search(random_rows(1), 1).ids.tolist() == [[4]]


@pytest.mark.parametrize(
    ("storage", "error", "nbytes"),
    [("float32", 0.0, 24), ("float16", 5e-4, 12), ("int8", 4e-3, 6)],
)
def test_storage_trades_digits_for_memory(storage, error, nbytes, engine):
    rows = random_rows(300) * np.logspace(-3, 3, 300)[:, None]
    rows[7] = 0.0
    index = ExactIndex(rows, storage=storage)
    kept = index.gallery.embeddings
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (np.abs(kept - rows.astype("f4")) <= error * largest).all()
    assert index.gallery.shards[0].values.nbytes == 300 * nbytes
    # The search is exact for what is kept.
    found = index.search(rows[:5], 6)
    for i, (order, _) in enumerate(slow_search(rows[:5], kept, 6)):
        np.testing.assert_array_equal(found.indices[i], order)


def test_numbers_beyond_float16_are_refused():
    with pytest.raises(ValueError, match="65504"):
        ExactIndex(np.full((2, 3), 1e5), storage="float16")
    with pytest.raises(ValueError, match="storage='float8'"):
        ExactIndex(storage="float8")


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_a_mapped_index_answers_like_one_in_memory(storage, tmp_path):
    index = filled(storage=storage)
    index.save(tmp_path / "index")
    mapped = ExactIndex.load(tmp_path / "index", mmap=True)
    assert isinstance(mapped.gallery.shards[0].values, np.memmap)
    one, two = index.search(random_rows(5), 9), mapped.search(random_rows(5), 9)
    for name in ("ids", "labels", "distances", "indices", "counts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("name", ["embeddings", "labels", "ids", "scales"])
def test_a_flipped_bit_is_noticed(tmp_path, name):
    filled(storage="int8").save(tmp_path / "index")
    path = tmp_path / "index" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=rf"{name}\.npy.*damaged"):
        ExactIndex.load(tmp_path / "index")


def test_a_full_disk_leaves_the_old_index(tmp_path, monkeypatch):
    index = filled()
    index.save(tmp_path / "index")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gallery, "_write_vectors", full)
    with pytest.raises(OSError, match="No space left"):
        filled(5).save(tmp_path / "index", overwrite=True)
    monkeypatch.undo()
    assert len(ExactIndex.load(tmp_path / "index")) == 60
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"color": ["a"]}, ValueError, r"\['color', 'year'\]"),
        ({"color": [1], "year": [1]}, TypeError, "`color` must be of the kind"),
        ({"color": ["a"], "year": [1, 2]}, ValueError, r"`year`.*\(2,\)"),
        ({"a b": [1]}, ValueError, "must be words"),
        ({"label": [1]}, ValueError, "must be words"),
    ],
)
def test_other_attributes_are_refused(attributes, error, message):
    index = filled()
    for change in (index.add, index.upsert):
        with pytest.raises(error, match=message):
            change(random_rows(1), [1], ["new"], attributes)
    assert len(index) == 60
    with pytest.raises(ValueError, match="ids=None"):
        index.upsert(random_rows(1), [1], None)


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
