"""Class proxies and class embeddings: tables with rows for each class."""

import keras
import numpy as np
from keras import ops

import keras_gsp as gsp
from keras_gsp.layers.class_proxies import ClassEmbeddings
from tests.compiled import not_on_jax
from tests.gradients import gradients


def test_output_is_the_cosine_to_every_proxy():
    layer = gsp.layers.ClassProxies(5, proxies_per_class=2)
    vectors = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    vectors[2] = 0.0
    found = layer(vectors)
    assert found.shape == (3, 5, 2)
    proxies = keras.ops.convert_to_numpy(layer.proxies).astype("float64")
    rows = keras.ops.convert_to_numpy(layer.flat_proxies())
    assert layer.proxy_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for row, label in enumerate(layer.proxy_labels):
        k = row % 2
        np.testing.assert_array_equal(rows[row], proxies[label, k])
        for i, vector in enumerate(vectors.astype("float64")):
            lengths = np.linalg.norm(vector) * np.linalg.norm(rows[row])
            expected = vector @ rows[row] / lengths if lengths else 0.0
            np.testing.assert_allclose(found[i, label, k], expected, atol=1e-6)


def test_returns_the_rows_of_the_labels():
    layer = ClassEmbeddings(5, 3)
    table, labels = np.asarray(layer.embeddings), np.array([4, 0, 0, 2])
    for same in (labels, labels.astype("float32"), labels[:, None]):
        np.testing.assert_array_equal(layer(same), table[labels])

    def total(table):
        mapping = [(layer.embeddings, 1.0 * table)]
        with keras.StatelessScope(state_mapping=mapping):
            return ops.sum(layer(labels))

    (gradient,) = gradients(total, table)
    expected = np.bincount(labels, minlength=5)[:, None] * np.ones(3)
    np.testing.assert_array_equal(gradient, expected)


@not_on_jax
def test_rows_start_at_one_norm_and_half_precision_rounds_nothing():
    labels = np.array([4097.0, 4098.0, 4999.0], "float32")
    for policy in ("mixed_float16", "mixed_bfloat16"):
        layer = ClassEmbeddings(5000, 128, dtype=policy)
        table, rows = np.asarray(layer.embeddings), layer(labels)
        assert keras.backend.standardize_dtype(rows.dtype) == "float32"
        np.testing.assert_array_equal(rows, table[labels.astype(int)])
    for rows in (table, np.asarray(ClassEmbeddings(18, 128).embeddings)):
        norms = np.linalg.norm(rows, axis=1)
        np.testing.assert_allclose(norms.mean(), np.sqrt(2.0), rtol=0.05)
