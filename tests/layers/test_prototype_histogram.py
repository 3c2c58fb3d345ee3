"""The layer around `soft_histogram`; its values are checked in tests/ops."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers.prototype_histogram import PrototypeHistogram
from keras_gsp.ops.normalization import unit_ball
from tests.compiled import on_tensorflow


def feature_maps(batch=3, spatial=(4, 5), channels=6):
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, *spatial, channels)).astype("float32")


def test_l2_is_the_histogram_of_gsp_that_discards_nothing():
    features = 0.1 * feature_maps()  # Inside the unit ball.
    pooling = gsp.layers.GeneralizedSumPooling(
        7, 1.0, inverse_temperature=5.0, return_histogram=True
    )
    _, expected = pooling(features)
    prototypes = unit_ball(pooling.prototypes)
    layer = PrototypeHistogram(7, 5.0, affinity="l2")
    layer.build(features.shape)
    layer.prototypes.assign(prototypes)
    np.testing.assert_allclose(
        np.asarray(layer(features)), np.asarray(expected), atol=1e-6
    )


@on_tensorflow
def test_keras_mask_is_obeyed_and_ends_here():
    tokens = feature_maps(spatial=(6,))
    tokens[0, 4:] = 0.0
    inputs = keras.Input((6, 6))
    layer = PrototypeHistogram(7)
    output = layer(keras.layers.Masking()(inputs))
    assert getattr(output, "_keras_mask", None) is None
    found = keras.Model(inputs, output).predict(tokens, verbose=0)
    expected = np.asarray(layer(tokens[:1, :4]))
    np.testing.assert_allclose(found[:1], expected, atol=1e-6)


@on_tensorflow
def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="`num_prototypes` must.*=0"):
        PrototypeHistogram(0)
    with pytest.raises(ValueError, match="`inverse_temperature` must.*=-1"):
        PrototypeHistogram(inverse_temperature=-1)
    with pytest.raises(ValueError, match="`affinity` must.*='cosine'"):
        PrototypeHistogram(affinity="cosine")
    with pytest.raises(ValueError, match=r"Received: shape \(2, 6\)"):
        PrototypeHistogram(7).build((2, 6))
    with pytest.raises(ValueError, match="channels of the features must be"):
        PrototypeHistogram(7).build((None, None, None))
