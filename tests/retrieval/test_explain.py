"""explain: the shares of prototypes add up to the similarity."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp._encoding import embedding_of
from keras_gsp.retrieval import explain


def encoder_with(pooling, normalization="l2", tokens=False, size=6):
    backbone = keras.Sequential([keras.Input((8, 8, 3))])
    backbone.add(keras.layers.Conv2D(10, 3))
    if tokens:
        backbone.add(keras.layers.Reshape((36, 10)))
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=size,
        pooling=pooling,
        normalization=normalization,
    )
    pool = encoder.get_layer(pooling.name)
    if hasattr(pool, "prototypes"):
        pool.prototypes.assign(keras.random.normal(pool.prototypes.shape))
    return encoder


def images(count, seed=0):
    return np.random.default_rng(seed).random((count, 8, 8, 3), "float32")


def pooling(**options):
    return gsp.layers.GeneralizedSumPooling(5, 0.3, 8.0, **options)


@pytest.mark.parametrize(
    ("normalization", "options", "tokens"),
    [
        ("l2", {}, False),
        ("l2", {"return_histogram": True}, True),
        ("ball", {"return_histogram": True}, False),
        (None, {}, True),
    ],
)
def test_contributions_add_up_to_the_similarity(normalization, options, tokens):
    encoder = encoder_with(pooling(**options), normalization, tokens)
    queries, neighbors = images(4), images(4, seed=1)
    shares = explain(encoder, queries, neighbors)

    first, second = (
        np.asarray(embedding_of(encoder(x))) for x in (queries, neighbors)
    )
    expected = (first * second).sum(axis=1)
    for found in (shares.similarity, shares.contributions.sum(axis=1)):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_contributions_equal_the_loop_over_places_and_prototypes():
    encoder = encoder_with(pooling())
    query, neighbor = images(1), images(1, seed=1)
    shares = explain(encoder, query, neighbor)
    layer = encoder.layers[-2]
    taken = keras.Model(encoder.inputs, [layer.input, layer.output])

    def parts(image):
        features, pooled = taken.predict(image, verbose=0)
        plan = keras.ops.convert_to_numpy(layer.transport_plan(features))
        found = np.zeros((5, 6))
        for i, row, column in np.ndindex(5, 6, 6):
            moved = plan[0, row, column, i] / 0.3
            found[i] += moved * features[0, row, column]
        return found / np.linalg.norm(pooled)

    pairs = parts(query) @ parts(neighbor).T
    expected = (pairs.sum(axis=1) + pairs.sum(axis=0)) / 2
    np.testing.assert_allclose(
        shares.contributions[0], expected, rtol=1e-4, atol=1e-6
    )
    # Maps are the pooling weights, split over prototypes.
    weights = layer.pooling_weights(taken.predict(query, verbose=0)[0])
    np.testing.assert_allclose(
        shares.query_maps.sum(axis=-1), weights, atol=1e-6
    )
    assert shares.neighbor_maps.shape == (1, 6, 6, 5)
