"""ScannIndex: settings, updates, exports with a measured recall."""

import importlib.util

import keras
import numpy as np
import pytest

from keras_gsp.retrieval import (
    ExactIndex,
    ScannIndex,
    export_retriever,
)
from keras_gsp.storage.whole import current_folder
from tests.retrieval.index.test_indexes import clustered, share
from tests.retrieval.serving.served_answers import answers_elsewhere
from tests.retrieval.serving.served_artefact import (
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


ROWS, LABELS = clustered(1000, size=8)
QUERIES, _ = clustered(50, seed=1, size=8)


@needs_scann
def test_pickled_ids_and_bad_options_are_refused(tmp_path):
    ScannIndex(ROWS[:30]).save(tmp_path / "index")
    folder = current_folder(tmp_path / "index")
    (folder / "scann" / "scann_docids.pkl").write_bytes(b"\x80")
    with pytest.raises(ValueError, match="never loaded.*scann_docids"):
        ScannIndex.load(tmp_path / "index")
    with pytest.raises(ValueError, match="kind 'exact'.*kind 'scann'"):
        ExactIndex.load(tmp_path / "index")
    with pytest.raises(ValueError, match="forest"):
        ScannIndex(np.eye(3), settings={"forest": {}})


@needs_scann
def test_where_few_leaves_hold_too_few_the_rest_is_padding():
    few = SETTINGS | {"tree": {"num_leaves": 50, "num_leaves_to_search": 1}}
    found = ScannIndex(ROWS, settings=few).search(ROWS[:9], 500)
    assert found.counts.max() < 500  # and padding after them
    is_found = np.arange(500) < found.counts[:, None]
    np.testing.assert_array_equal(found.indices >= 0, is_found)
    np.testing.assert_array_equal(np.isfinite(found.distances), is_found)


@needs_scann
def test_a_changed_tree_is_searched_and_saved(tmp_path):
    new, new_labels = clustered(60, seed=3, size=8)
    ids = [f"i{i}" for i in range(1000)]
    new_ids = ids[5:15] + [f"n{i}" for i in range(50)]
    index = ScannIndex(ROWS, LABELS, ids, settings=SETTINGS)
    exact = ExactIndex(ROWS, LABELS, ids)
    for one in (index, exact):
        assert one.delete([*ids[::7], "unknown"]) == 143
        one.upsert(new, new_labels, new_ids)
        assert one.delete(["n3", "i1"]) == 2
        assert len(one) == one.count()
    expected = exact.search(QUERIES, 10)
    index.save(tmp_path / "index")
    for one in (index, ScannIndex.load(tmp_path / "index", mmap=True)):
        found = one.search(QUERIES, 10)
        assert share(found, expected) > 0.9
        assert (np.diff(found.distances, axis=1) >= 0).all()
        hits = one.search(new[20:30], 1)
        assert hits.ids[:, 0].tolist() == new_ids[20:30]
        assert hits.distances.max() == 0.0


@needs_scann
@pytest.mark.slow
def test_an_export_with_scann_answers_as_the_index(tmp_path):
    keras.utils.set_random_seed(0)
    files = write_files(tmp_path)
    pixels, encoder = pixels_of(files), small_encoder()
    labels = np.array(list("ab")).repeat(5)
    index = ScannIndex.from_encoder(encoder, (pixels, labels))
    path = tmp_path / "retriever"
    export_retriever(encoder, index, path, neighbors=3)
    mixed = np.concatenate([files, write_broken_files(tmp_path, files)[:2]])
    questions = [(path, name, mixed) for name in ("search", "search_exact")]
    near, exact = answers_elsewhere(tmp_path, questions, "scann")
    expected = index.search(encoder.predict(pixels, verbose=0), 3)
    np.testing.assert_array_equal(near["ids"][:10].astype(int), expected.ids)
    assert near["counts"].tolist() == [3] * 10 + [0] * 2
    for name, values in exact.items():
        np.testing.assert_array_equal(near[name], values, name)
