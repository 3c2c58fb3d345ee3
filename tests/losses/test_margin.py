"""What is particular to the margin loss: a boundary that can be learned."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.losses.pair_oracle import Pairs, margin

LABELS = np.arange(12) % 3
IMAGES = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")


def learner(**arguments):
    encoder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    return gsp.models.MetricLearner(encoder, **arguments)


def boundary(num_classes=None):
    return gsp.layers.LearnedBoundary(num_classes, initial_boundary=1.1)


@pytest.mark.parametrize("num_classes", [None, 3])
def test_each_anchor_has_a_boundary_that_moves(num_classes):
    model = learner(loss_layer=boundary(num_classes))
    loss = gsp.losses.MarginLoss(0.2, learn_beta=True)
    model.compile(keras.optimizers.SGD(0.1), loss=loss, run_eagerly=True)
    pairs = Pairs(LABELS, keras.ops.convert_to_numpy(model.encoder(IMAGES)))
    found = model.evaluate(IMAGES, LABELS, batch_size=12, verbose=0)
    np.testing.assert_allclose(found, margin(pairs, beta=1.1), rtol=1e-5)
    start = np.array([0.8, 1.1, 1.5], "float32")[: num_classes or 1]
    model.loss_layer.boundaries.assign(start)
    found = model.evaluate(IMAGES, LABELS, batch_size=12, verbose=0)
    expected = margin(pairs, beta=start.mean())
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = model.train_on_batch(IMAGES, LABELS)
    expected = margin(pairs, beta=start[LABELS % len(start)])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    moved = keras.ops.convert_to_numpy(model.loss_layer.boundaries)
    assert np.all(moved != start)


def test_each_class_has_its_own_boundary():
    layer = gsp.layers.LearnedBoundary(3)
    layer.build()
    layer.boundaries.assign([0.8, 1.0, 1.3])
    np.testing.assert_allclose(layer(np.array([2, 0, 0])), [1.3, 0.8, 0.8])
    np.testing.assert_allclose(layer.mean_boundary(), 3.1 / 3)
    with pytest.raises(ValueError, match=r"in \[0, 3\)"):
        layer(np.array([3]))


def test_a_learned_boundary_works_with_proxies_and_is_saved(tmp_path):
    model = learner(loss_layer=boundary(), proxies=gsp.layers.ClassProxies(3))
    model.compile("sgd", loss=gsp.losses.MarginLoss(learn_beta=True))
    model.train_on_batch(IMAGES, LABELS)
    model.save(tmp_path / "learner.keras")
    loaded = keras.models.load_model(tmp_path / "learner.keras")
    assert loaded.loss.learn_beta
    np.testing.assert_array_equal(
        loaded.loss_layer.boundaries, model.loss_layer.boundaries
    )
    loss = gsp.losses.MarginLoss(learn_beta=True)
    with pytest.raises(RuntimeError, match="loss_layer=LearnedBoundary"):
        loss(LABELS, IMAGES)
    with pytest.raises(ValueError, match="MarginLoss needs loss_layer"):
        learner().compile("sgd", loss=loss)
