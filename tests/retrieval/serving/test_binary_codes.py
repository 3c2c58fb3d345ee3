"""A short list by binary codes, and the export that searches with it."""

import keras
import numpy as np
import pytest

from keras_gsp.retrieval import (
    ExactIndex,
    ScannIndex,
    export_retriever,
    verify,
)
from tests.retrieval.serving.served_artefact import (
    pixels_of,
    small_encoder,
    write_files,
)

if keras.backend.backend() != "tensorflow":
    pytest.skip("SavedModels", allow_module_level=True)
import tensorflow as tf

from keras_gsp.retrieval.serving.binary_codes import BinaryCodes

LABELS = np.array(["cat", "dog", "cow", "hen", "pig"]).repeat(2)


@pytest.mark.parametrize("size", [6, 64, 100])
def test_the_short_list_has_the_fewest_differing_bits(size):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, size)).astype("float32") + 2.0
    queries = rng.normal(size=(3, size)).astype("float32") + 2.0
    codes = BinaryCodes(rows)
    assert codes.num_bits == 64 * -(-size // 64)
    found = codes.shortlist(queries, 1).numpy()
    assert found.shape == (3, 100)
    rotation = codes.variables["rotation"].numpy()
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(size), atol=1e-5)
    center = rows.mean(axis=0)
    bits, asked = ((x - center) @ rotation > 0 for x in (rows, queries))
    for query, near in zip(asked, found, strict=True):
        differing = (bits != query).sum(axis=1)
        order = np.argsort(differing, kind="stable")[:100]
        assert near.tolist() == order.tolist()
    assert codes.shortlist(queries, 40).shape == (3, 300)


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_an_export_finds_the_exact_neighbors_with_codes(tmp_path, storage):
    keras.utils.set_random_seed(0)
    files = write_files(tmp_path)
    pixels = pixels_of(files)
    encoder = small_encoder()
    rows = encoder.predict(pixels, verbose=0)
    index = ExactIndex(rows, LABELS, storage=storage)
    options = {"codes": "binary", "held_out": (pixels, LABELS)}
    export_retriever(encoder, index, tmp_path / "codes", neighbors=3, **options)
    facts = verify(tmp_path / "codes")
    assert facts["codes"] == {"kind": "binary", "bits": 64}
    assert facts["search_recall"]["recall"] == 1.0
    model = tf.saved_model.load(str(tmp_path / "codes"))
    image = tf.stack([tf.io.read_file(files[4]), b"no image"])
    answers = [
        model.signatures[name](image_bytes=image)
        for name in ("search_exact", "search_codes")
    ]
    assert answers[0]["labels"].shape == (2, 3)
    for name, exact in answers[0].items():
        np.testing.assert_array_equal(answers[1][name], exact)
    assert model.gallery_variables["rows"].dtype == storage


def test_codes_where_there_are_none_are_refused(tmp_path):
    encoder = small_encoder()
    rows = np.random.default_rng(0).normal(size=(10, 6))
    index = ExactIndex(rows, LABELS)
    scann = object.__new__(ScannIndex)
    scann.gallery = index.gallery
    for given, codes, words in (
        (index, "ternary", "must be None or .binary."),
        (index, "binary", "`held_out` must be images"),
        (object(), "binary", "keep its vectors in memory"),
        (scann, "binary", "has its own short list"),
    ):
        with pytest.raises(ValueError, match=words):
            export_retriever(encoder, given, tmp_path / "x", codes=codes)
    assert not (tmp_path / "x").exists()
