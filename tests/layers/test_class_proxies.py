"""Class proxies: cosines, labels of rows, precision, errors."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import on_tensorflow


def embeddings(size=3):
    random = np.random.default_rng(0)
    return random.normal(size=(size, 8)).astype("float32")


def test_output_is_the_cosine_to_every_proxy():
    layer = gsp.layers.ClassProxies(5, proxies_per_class=2)
    vectors = embeddings()
    found = layer(vectors)
    proxies = keras.ops.convert_to_numpy(layer.proxies).astype("float64")
    assert found.shape == (3, 5, 2)
    for i, vector in enumerate(vectors.astype("float64")):
        for c in range(5):
            for k in range(2):
                lengths = np.linalg.norm(vector) * np.linalg.norm(proxies[c, k])
                expected = vector @ proxies[c, k] / lengths
                np.testing.assert_allclose(found[i, c, k], expected, atol=1e-6)


@on_tensorflow
def test_rows_of_flat_proxies_have_proxy_labels():
    layer = gsp.layers.ClassProxies(3, proxies_per_class=2)
    layer.build((None, 8))
    proxies = keras.ops.convert_to_numpy(layer.proxies)
    rows = keras.ops.convert_to_numpy(layer.flat_proxies())
    assert rows.shape == (6, 8)
    assert layer.proxy_labels.tolist() == [0, 0, 1, 1, 2, 2]
    for row, label in enumerate(layer.proxy_labels):
        np.testing.assert_array_equal(rows[row], proxies[label, row % 2])


def test_zero_vectors_are_finite():
    layer = gsp.layers.ClassProxies(2, proxies_initializer="zeros")
    np.testing.assert_array_equal(layer(np.zeros((2, 4), "float32")), 0.0)


@on_tensorflow
def test_wrong_arguments_are_refused():
    for name in ("num_classes", "proxies_per_class"):
        for value in (0, 2.5):
            arguments = {"num_classes": 3, name: value}
            with pytest.raises(ValueError, match=f"Received: {name}={value}"):
                gsp.layers.ClassProxies(**arguments)
    for shape in [(None, 7, 8), (None, None)]:
        with pytest.raises(ValueError, match="embedding_size"):
            gsp.layers.ClassProxies(3).build(shape)
