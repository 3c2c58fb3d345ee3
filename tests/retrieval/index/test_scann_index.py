"""ScannIndex: settings, updates, exports with a measured recall."""

import importlib.util
import json
import sys

import keras
import numpy as np
import pytest

from keras_gsp.retrieval import (
    ExactIndex,
    ScannIndex,
    export_retriever,
)
from keras_gsp.retrieval.index.scann_index import automatic_settings
from tests.retrieval.serving.served_artefact import (
    ask,
    pixels_of,
    small_encoder,
    write_broken_files,
    write_files,
)

needs_scann = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow"
    or importlib.util.find_spec("scann") is None,
    reason="ScaNN with TensorFlow",
)
SETTINGS = {
    "tree": {"num_leaves": 20, "num_leaves_to_search": 8},
    "score_ah": {"dimensions_per_block": 2},
    "reorder": {"reordering_num_neighbors": 60},
}


def clustered(count, seed=0, size=8):
    rng = np.random.default_rng(seed)
    labels = rng.integers(30, size=count)
    centers = np.random.default_rng(99).normal(size=(30, size))
    rows = centers[labels] + 0.3 * rng.normal(size=(count, size))
    return rows.astype("float32"), labels


@needs_scann
def test_tree_and_hashing_find_most_of_the_neighbors():
    rows, _ = clustered(2000)
    queries, _ = clustered(50, seed=1)
    found = ScannIndex(rows, settings=SETTINGS).search(queries, 10)
    expected = ExactIndex(rows).search(queries, 10)
    shared = [
        len(np.intersect1d(one, other))
        for one, other in zip(found.indices, expected.indices, strict=True)
    ]
    assert np.mean(shared) > 9.0
    assert (np.diff(found.distances, axis=1) >= 0).all()


@needs_scann
def test_what_is_not_found_is_padding_and_not_a_neighbor():
    rows, _ = clustered(1000)
    few = SETTINGS | {"tree": {"num_leaves": 50, "num_leaves_to_search": 1}}
    found = ScannIndex(rows, settings=few).search(rows[:9], 500)
    assert found.counts.max() < 500
    for row, count in enumerate(found.counts):
        assert (found.indices[row, count:] == -1).all()
        assert np.isinf(found.distances[row, count:]).all()
        assert (found.indices[row, :count] >= 0).all()


@needs_scann
def test_pickled_ids_are_refused(tmp_path):
    ScannIndex(clustered(30)[0]).save(tmp_path / "index")
    (tmp_path / "index" / "scann" / "scann_docids.pkl").write_bytes(b"\x80")
    with pytest.raises(ValueError, match="never loaded.*scann_docids"):
        ScannIndex.load(tmp_path / "index")
    with pytest.raises(ValueError, match="kind 'exact'.*kind 'scann'"):
        ExactIndex.load(tmp_path / "index")


@needs_scann
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.eye(3),), {"settings": {"forest": {}}}, "forest"),
        ((np.eye(3),), {"num_neighbors": 0}, "num_neighbors=0"),
    ],
)
def test_bad_galleries_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        ScannIndex(*arguments, **options)


def test_without_scann_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scann", None)
    with pytest.raises(ImportError, match=r"keras-gsp\[ann\]"):
        ScannIndex(np.eye(3))


def test_large_galleries_get_a_tree_and_small_ones_none():
    assert automatic_settings(100, 10) == {"score_brute_force": {}}
    large = automatic_settings(250_000, 50)
    assert large["tree"]["num_leaves"] == 500
    assert large["reorder"]["reordering_num_neighbors"] == 500


@needs_scann
@pytest.mark.parametrize("settings", [None, SETTINGS])
def test_changes_leave_an_index_of_what_is_there(settings, tmp_path):
    rows, labels = clustered(600)
    new, new_labels = clustered(60, seed=3)
    ids = [f"i{i}" for i in range(600)]
    new_ids = ids[5:15] + [f"n{i}" for i in range(50)]
    options = {"settings": settings}
    index = ScannIndex(rows, labels, ids, **options)
    exact = ExactIndex(rows, labels, ids)
    for one in (index, exact):
        assert one.delete([*ids[::7], "unknown"]) == 86
        one.upsert(new, new_labels, new_ids)
        assert one.delete(["n3", "i1"]) == 2
        assert len(one) == one.count()
    queries, _ = clustered(20, seed=1)
    expected = exact.search(queries, 10)
    for searched in (index, None):
        if searched is None:
            index.save(tmp_path / "index")
            searched = ScannIndex.load(tmp_path / "index", mmap=True)
        found = searched.search(queries, 10)
        shared = [
            len(np.intersect1d(one, other))
            for one, other in zip(found.ids, expected.ids, strict=True)
        ]
        assert np.mean(shared) > (9.0 if settings else 9.999)
        hits = searched.search(new[20:30], 1)
        assert hits.ids[:, 0].tolist() == new_ids[20:30]
        assert hits.distances.max() == 0.0
    np.testing.assert_array_equal(
        index.search_exactly(queries, 10).ids, expected.ids
    )


@needs_scann
@pytest.mark.slow
def test_an_export_with_scann_answers_and_its_recall_is_measured(tmp_path):
    keras.utils.set_random_seed(0)
    files = write_files(tmp_path)
    bad = write_broken_files(tmp_path, files)
    pixels, encoder = pixels_of(files), small_encoder()
    labels = np.array(list("ab")).repeat(5)
    index = ScannIndex.from_encoder(
        encoder, (pixels, labels), ids=list("0123456789")
    )
    path = tmp_path / "retriever"
    held_out = pixels[:4].astype("float32") * 0.9, labels[:4]
    export_retriever(encoder, index, path, neighbors=3, held_out=held_out)
    facts = json.loads((path / "metadata.json").read_text())
    measured = facts["search_recall"]
    assert measured["recall"] == 1.0
    assert measured["map_at_r_exact"] == measured["map_at_r_approximate"]
    mixed = np.concatenate([files, bad[:2]])
    questions = [
        (path, "search_ann", ["image_bytes"], mixed),
        (path, "search_exact", ["image_bytes"], mixed),
        (path, "search_ann", ["image_bytes"], files[1]),
    ]
    near, exact, single = ask(tmp_path, questions, scann=True)
    embeddings = encoder.predict(pixels, verbose=0)
    expected = index.search(embeddings, 3)
    for answer in (near, exact):
        np.testing.assert_array_equal(answer["ids"][:10], expected.ids)
        np.testing.assert_array_equal(answer["labels"][:10], expected.labels)
        assert answer["counts"].tolist() == [3] * 10 + [0] * 2
        np.testing.assert_allclose(
            answer["distances"][:10], expected.distances, atol=2e-6
        )
    np.testing.assert_array_equal(single["ids"], expected.ids[1])


@needs_scann
def test_a_poor_index_is_refused_or_warned_of(tmp_path):
    encoder = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten()])
    rng = np.random.default_rng(0)
    images = rng.normal(size=(1000, 4, 4, 2)).astype("float32")
    labels = np.arange(1000) % 50
    poor = SETTINGS | {"tree": {"num_leaves": 100, "num_leaves_to_search": 1}}
    index = ScannIndex.from_encoder(
        encoder, (images[:900], labels[:900]), settings=poor
    )
    held_out = images[900:], labels[900:]
    with pytest.raises(ValueError, match="held_out=None"):
        export_retriever(encoder, index, tmp_path / "r")
    with pytest.raises(ValueError, match="must find 0.950"):
        export_retriever(encoder, index, tmp_path / "r", held_out=held_out)
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(UserWarning, match="must find 0.950"):
        export_retriever(
            encoder,
            index,
            tmp_path / "r",
            held_out=held_out,
            below_minimum="warn",
        )
    facts = json.loads((tmp_path / "r" / "metadata.json").read_text())
    assert 0.0 < facts["search_recall"]["recall"] < 0.95
