"""Neighbor augmentation equals its equations, and settings are chosen."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval.augmentation import AugmentedRows
from keras_gsp.retrieval.index.augmented_search import AugmentedSearch
from tests.retrieval.serving.served_answers import answers_here
from tests.retrieval.serving.served_artefact import small_encoder, write_files

Augmentation = gsp.retrieval.NeighborAugmentation


def things(count, photographs, noise, seed=0):
    """Rows of things in 24 dimensions, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(count), photographs)
    centers = np.random.default_rng(9).normal(size=(count, 24))
    return centers[labels] + noise * rng.normal(size=(len(labels), 24)), labels


def by_the_equations(rows, queries, k, rounds, power, weight):
    """Similarities (queries, rows), by one loop over rows and queries."""

    def unit(row):
        return row / np.linalg.norm(row)

    def mixed(row, gallery, own=None):
        cosines = gallery @ row
        others = [j for j in np.argsort(-cosines) if j != own][:k]
        start = row.copy()
        for j in others:
            start = start + max(cosines[j], 0) ** power * gallery[j]
        return unit(start)

    gallery = first = np.stack([unit(row) for row in rows])
    asked = asked_first = np.stack([unit(row) for row in queries])
    for _ in range(rounds):
        asked = np.stack([mixed(row, gallery) for row in asked])
        gallery = np.stack(
            [mixed(row, gallery, own) for own, row in enumerate(gallery)]
        )
    return asked @ gallery.T + weight * asked_first @ first.T


@pytest.mark.parametrize(
    ("k", "rounds", "power", "weight"),
    [(2, 2, 3.0, 1.0), (5, 1, 1.0, 0.0), (3, 3, 2.0, 0.5), (0, 2, 3.0, 1.0)],
)
def test_similarities_are_those_of_the_equations(k, rounds, power, weight):
    rows, queries = things(8, 5, 1.0)[0], things(8, 1, 1.0, seed=1)[0]
    augmented = AugmentedRows(
        rows,
        Augmentation(k, rounds=rounds, power=power, original_weight=weight),
    )
    found = augmented.expanded(queries) @ augmented.rows.T
    expected = by_the_equations(rows, queries, k, rounds, power, weight)
    np.testing.assert_allclose(found, expected, atol=1e-5)


# Kind, its options, and the module that it needs.
ENGINES = {
    "exact": ("ExactIndex", {}, "numpy"),
    "float16": ("ExactIndex", {"storage": "float16"}, "numpy"),
    "faiss": ("FaissIndex", {"factory": "HNSW16"}, "faiss"),
    "scann": ("ScannIndex", {}, "scann"),
    "milvus": ("MilvusIndex", {}, "milvus_lite"),
}


def empty(engine, folder, **options):
    kind, settings, needed = ENGINES[engine]
    pytest.importorskip(needed)
    address = [folder / "gallery.db", "things"] if engine == "milvus" else []
    return getattr(gsp.retrieval, kind)(*address, **settings, **options)


def gallery(rows, labels, augmentation, engine="exact", folder=None):
    index = empty(engine, folder, augmentation=augmentation)
    names = [f"{row:03}" for row in range(len(rows))]
    index.upsert(rows, labels, names, {"half": np.arange(len(rows)) % 2})
    return index


def own_distances(queries, rows, found):
    gaps = queries[:, None] - rows[found.ids.astype(int)]
    return np.linalg.norm(gaps, axis=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_order_is_augmented_and_distances_are_original(engine, tmp_path):
    (rows, labels), queries = things(8, 5, 1.0), things(8, 1, 1.0, seed=1)[0]
    index = gallery(rows, labels, Augmentation(4), engine, tmp_path)
    expected = by_the_equations(rows, queries, 4, 2, 3.0, 1.0)
    order = np.argsort(-expected, axis=1)
    found = index.search(queries, 9)
    np.testing.assert_array_equal(found.ids.astype(int), order[:, :9])
    shown = own_distances(queries, rows, found)
    np.testing.assert_allclose(found.distances, shown, atol=2e-3)
    found = index.search(queries, 3, where={"half": 1})
    odd = [[i for i in row if i % 2][:3] for row in order]
    np.testing.assert_array_equal(found.ids.astype(int), odd)
    found = index.search(queries, 3, group_by="label", exclude_ids=["000"] * 8)
    for groups, row in zip(found.groups, order, strict=True):
        first = dict.fromkeys(labels[i] for i in row if i)
        assert groups.tolist() == list(first)[:3]
    index.augmentation = None
    plain = own_distances(queries, rows, index.search(queries, 9))
    assert (np.diff(plain, axis=1) >= -1e-6).all()


def test_an_item_is_as_near_as_the_nearest_photograph_of_a_thing():
    (rows, labels), queries = things(8, 5, 1.0), things(8, 1, 1.0, seed=1)[0]
    index = gallery(rows, labels, Augmentation(4))
    expected = by_the_equations(rows, queries, 4, 2, 3.0, 1.0)
    expected = expected.reshape(4, 2, -1).max(axis=1)
    found = index.search(queries.reshape(4, 2, -1), 5)
    order = np.argsort(-expected, axis=1)[:, :5]
    np.testing.assert_array_equal(found.indices, order)


@pytest.mark.parametrize("engine", ["exact", "faiss", "milvus"])
def test_a_saved_augmentation_is_loaded(engine, tmp_path):
    (rows, labels), queries = things(8, 5, 1.0), things(8, 1, 1.0, seed=1)[0]
    index = gallery(rows, labels, Augmentation(4), engine, tmp_path)
    before = index.search(queries, 9).ids
    if engine == "milvus":
        index.close()
        index = empty(engine, tmp_path)
    else:
        index.save(tmp_path / "saved")
        index = type(index).load(tmp_path / "saved")
    assert index.augmentation == Augmentation(4)
    np.testing.assert_array_equal(index.search(queries, 9).ids, before)
    index.delete(["000"])
    assert "000" not in index.search(queries, 40).ids


def test_single_changes_stay_near_a_fresh_index_and_refresh_makes_one():
    (rows, labels), queries = things(20, 12, 1.8), things(20, 4, 1.8, seed=1)[0]
    wanted = np.repeat(np.arange(20), 4)
    changed = np.random.default_rng(2).permutation(len(rows))[:24]
    before = rows.copy()
    before[changed] = rows[changed[::-1]]
    index = gallery(before, labels, Augmentation(8))
    for row in changed:
        name, own = [f"{row:03}"], {"half": [row % 2]}
        index.delete(name)
        index.upsert(rows[[row]], labels[[row]], name, own)
    fresh = gallery(rows, labels, Augmentation(8))

    def precision(searched):
        found = searched.search(queries, 12)
        return (found.labels == wanted[:, None]).mean()

    assert abs(precision(index) - precision(fresh)) < 0.005
    index.refresh()
    np.testing.assert_array_equal(
        index.search(queries, 9).ids, fresh.search(queries, 9).ids
    )


def test_an_interrupted_change_is_finished_by_the_next_search(
    tmp_path, monkeypatch
):
    rows, labels = things(20, 12, 1.8)
    index = gallery(rows, labels, Augmentation(3))
    assert index.delete(["nobody"]) == index.delete([]) == 0
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AugmentedSearch, "_follow", interrupted)
        index.delete(["000"])
    index.save(tmp_path / "index")
    fresh = gallery(rows, labels, Augmentation(3))
    fresh.delete(["000"])
    fresh.refresh()
    for found in (index, type(index).load(tmp_path / "index")):
        np.testing.assert_array_equal(
            found.search(rows[:1], 9).ids, fresh.search(rows[:1], 9).ids
        )


def interrupted(*arguments):
    raise KeyboardInterrupt


def test_matches_are_of_the_original_distances():
    (rows, labels), queries = things(8, 5, 1.0), things(8, 1, 1.0, seed=1)[0]
    index = gallery(rows, labels, Augmentation(4))
    index.match = gsp.retrieval.MatchThreshold(6.0, 0.1, 0.9, 10, 10)
    found = index.search(queries, 9)
    np.testing.assert_array_equal(found.is_match, found.distances <= 6.0)
    assert found.is_match.any() and not found.is_match.all()


def test_no_neighbors_are_no_augmentation():
    assert gallery(*things(4, 3, 1.0), Augmentation(0)).augmentation is None


def test_settings_are_chosen_where_they_gain_and_none_where_nothing_does():
    many, few = things(12, 20, 1.6), things(60, 2, 3.0)
    chosen = Augmentation.chosen(*many)
    assert chosen.num_neighbors >= 4
    assert Augmentation.chosen(*few, score="precision_at_1").num_neighbors == 0


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="SavedModels"
)
@pytest.mark.parametrize("kind", ["ExactIndex", "ScannIndex"])
def test_a_retriever_and_its_export_answer_as_the_index(kind, tmp_path):
    pytest.importorskip(kind[:5].lower() if kind != "ExactIndex" else "numpy")
    files = write_files(tmp_path)
    settings = Augmentation(3, rounds=2, original_weight=0.5)
    index = getattr(gsp.retrieval, kind)()
    retriever = gsp.retrieval.Retriever.from_folder(
        tmp_path, small_encoder(), index=index, augmentation=settings
    )
    assert index.augmentation == settings
    changed = str(files[3])
    retriever.delete([retriever.index.ids()[3]])
    retriever.add([changed])
    index.refresh()
    expected = retriever.search(list(files), k=8)
    rows = retriever.embed(list(files))
    gallery = index.items(index.ids())[0].astype("float64")
    known = by_the_equations(gallery, rows.astype("float64"), 3, 2, 3.0, 0.5)
    order = np.argsort(-known, axis=1)
    np.testing.assert_array_equal(expected.indices, order[:, :8])
    retriever.save(tmp_path / "saved")
    loaded = gsp.retrieval.Retriever.load(tmp_path / "saved", folder=tmp_path)
    found = loaded.search(list(files), k=8)
    np.testing.assert_array_equal(found.ids, expected.ids)
    within = float(np.median(expected.distances))
    loaded.export(tmp_path / "export", neighbors=8, within=within)
    answer = answers_here([(tmp_path / "export", "search", files)])[0]
    found = loaded.search(list(files), k=8, within=within)
    np.testing.assert_array_equal(answer["counts"], found.counts)
    np.testing.assert_array_equal(answer["ids"], found.ids)
    is_near = np.isfinite(found.distances)
    np.testing.assert_allclose(
        answer["distances"][is_near], found.distances[is_near], atol=1e-4
    )
