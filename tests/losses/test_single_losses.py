"""Limits, edges and errors of single losses."""

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import StepParts
from tests.compiled import compiled
from tests.gradients import central_differences, gradients
from tests.losses import proxy_oracle
from tests.losses.proxy_oracle import NUM_CLASSES, batch, make
from tests.losses.tables import every_proxy_case


def on_a_circle(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("float32")


def test_duplicates_are_not_counted_as_active_positives():
    # Float32 noise of a Gram matrix would make them 3e-4 apart and halve
    # the mean of the two pairs that really are apart.
    random = np.random.default_rng(0)
    embeddings = np.repeat(random.normal(size=(1, 128)), 3, axis=0)
    embeddings = embeddings.astype("float32")
    loss = gsp.losses.CosineContrastiveLoss()
    np.testing.assert_array_equal(loss([0, 0, 0], embeddings), 0.0)
    embeddings[2] *= -1.0
    loss = gsp.losses.ContrastiveLoss()
    value = loss([0, 0, 0], embeddings)
    np.testing.assert_allclose(value, 2.0, rtol=1e-6)
    (gradient,) = gradients(lambda e: loss([0, 0], e), embeddings[:2])
    np.testing.assert_array_equal(gradient, 0.0)


def test_extreme_scales_do_not_overflow():
    for loss, labels, inputs, expected in [
        # log(1 + e^x) / 1e4 is the cosine itself: 1 for both kinds of pair.
        (
            gsp.losses.MultiSimilarityLoss(alpha=1e4, beta=1e4, base=0.0),
            [0, 1, 0, 1],
            on_a_circle(0.0, 1.0, 180.0, 181.0),
            2.0,
        ),
        (
            gsp.losses.ProxyNCALoss(temperature=1e-3),
            [0, 1],
            np.array([[[1.0], [-1.0]]] * 2),
            1e3,
        ),
        (
            gsp.losses.SoftTripleLoss(scale=100.0, margin=0.01),
            [0],
            np.array([[[-1.0], [1.0]]]),
            201.0,
        ),
    ]:
        np.testing.assert_allclose(loss(labels, inputs), expected, rtol=1e-3)


def test_arcface_falls_and_has_a_finite_gradient_at_nothing_and_pi():
    def value(cosine):
        """One sample of class 0 among three, one proxy each."""
        others = keras.ops.convert_to_tensor([[[0.2], [0.2]]], "float32")
        return loss([0], keras.ops.concatenate([cosine, others], axis=1))

    loss = gsp.losses.ArcFaceLoss(margin=0.7, temperature=1 / 8)
    # XLA rounds in another way than eager TensorFlow.
    function = compiled(value)
    values = []
    for own in (-1.0 - 1e-6, *np.linspace(-1, 1, 21), 1.0 + 1e-6):
        given = np.full((1, 1, 1), own, "float32")
        values.append(float(function(keras.ops.convert_to_tensor(given))))
        assert np.all(np.isfinite(gradients(function, given)))
    assert np.all(np.diff(values[1:-1]) < 0.0)


def centers(num_classes=3, per_class=4):
    return np.random.default_rng(0).normal(size=(num_classes, per_class, 5))


def test_center_regularizer_is_that_of_the_loops(double_precision):
    regularizer = gsp.losses.CenterRegularizer(0.3)
    layer = gsp.layers.ClassProxies(
        3, proxies_per_class=4, proxies_regularizer=regularizer, dtype="float64"
    )
    layer.build((None, 5))
    layer.proxies.assign(centers())
    (value,) = layer.losses  # It is added to the loss of a model.
    expected = proxy_oracle.center_regularizer(centers(), 0.3)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    (found,) = gradients(regularizer, centers())
    (slopes,) = central_differences(
        lambda w: proxy_oracle.center_regularizer(w, 0.3), centers()
    )
    np.testing.assert_allclose(found, slopes, atol=1e-9)
    # Equal centers and single ones cost nothing.
    equal = np.repeat(centers(3, 1), 4, axis=1)
    np.testing.assert_array_equal(regularizer(equal), 0.0)
    np.testing.assert_array_equal(regularizer(equal[:, :1]), 0.0)
    np.testing.assert_array_equal(gradients(regularizer, equal)[0], 0.0)


@every_proxy_case
def test_loss_inside_is_that_of_these_samples_alone(case):
    labels, _ = batch()
    embeddings = np.random.default_rng(3).normal(size=(8, 6))
    for per_class in (1, 3):
        proxies = gsp.layers.ClassProxies(
            NUM_CLASSES, proxies_per_class=per_class
        )
        parts = StepParts(labels, embeddings, proxies=proxies)
        for kept in ([0, 2, 3, 6], range(8), []):
            is_inside = np.isin(np.arange(8), kept)
            found = float(make(case).inside_loss(parts, is_inside))
            expected = 0.0
            if len(kept):
                similarities = proxies(embeddings[is_inside])
                expected = float(make(case)(labels[is_inside], similarities))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
