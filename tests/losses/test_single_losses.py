"""Limits and edges of single losses."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import compiled
from tests.gradients import central_differences, gradients
from tests.losses import pair_oracle, proxy_oracle


def problem(classes, per_class, size, seed=0):
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    vectors = random.normal(size=(classes * per_class, size))
    return labels, vectors.astype("float32")


def on_a_circle(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("float32")


def cosines(own, others=0.2):
    """One sample of class 0 among three, one proxy each."""
    return np.array([[[own], [others], [others]]], "float32")


def test_duplicates_are_not_counted_as_active_positives():
    # Float32 noise of a Gram matrix would make them 3e-4 apart and halve
    # the mean of the two pairs that really are apart.
    embeddings = np.repeat(problem(1, 1, 128)[1], 3, axis=0)
    loss = gsp.losses.CosineContrastiveLoss()
    np.testing.assert_array_equal(loss([0, 0, 0], embeddings), 0.0)
    embeddings[2] *= -1.0
    loss = gsp.losses.ContrastiveLoss()
    value = loss([0, 0, 0], embeddings)
    np.testing.assert_allclose(value, 2.0, rtol=1e-6)
    (gradient,) = gradients(lambda e: loss([0, 0], e), embeddings[:2])
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize(
    ("loss", "labels", "inputs", "expected"),
    [
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
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_extreme_scales_do_not_overflow(loss, labels, inputs, expected):
    np.testing.assert_allclose(loss(labels, inputs), expected, rtol=1e-3)


def test_all_triplets_of_a_large_batch_in_float32():
    labels, embeddings = problem(2, 40, size=64)
    value = gsp.losses.TripletLoss()(labels, embeddings)
    expected = pair_oracle.triplet(pair_oracle.Pairs(labels, embeddings))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_smooth_ap_at_a_low_temperature_is_average_precision():
    random = np.random.default_rng(0)
    labels, embeddings = np.arange(15) % 3, random.normal(size=(15, 4))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    precisions = []
    for a in range(15):
        others = np.delete(np.arange(15), a)
        order = others[np.argsort(-(unit[others] @ unit[a]))]
        hits = labels[order] == labels[a]
        at = np.cumsum(hits) / np.arange(1, 15)
        precisions.append(at[hits].mean())
    loss = gsp.losses.SmoothAPLoss(1e-5, counts_query=False)
    np.testing.assert_allclose(
        1.0 - loss(labels, embeddings), np.mean(precisions), atol=1e-4
    )


def test_potentials_of_a_learner_are_those_of_samples_and_proxies():
    """Every charge meets every other one, from both ends."""
    random = np.random.default_rng(0)
    labels = np.arange(6) % 3
    embeddings = random.normal(size=(6, 4)).astype("float32")
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Identity()])
    model = gsp.models.MetricLearner(
        encoder, proxies=gsp.layers.ClassProxies(3, proxies_per_class=2)
    )
    loss = gsp.losses.PotentialFieldLoss(radius=1.0, decay=2.0)
    model.compile("sgd", loss=loss, run_eagerly=True)
    charges = np.concatenate([embeddings, model.proxies.flat_proxies()])
    classes = np.concatenate([labels, model.proxies.proxy_labels])
    potentials = loss(classes, charges) * len(charges)
    found = model.compute_loss(y=labels, y_pred=embeddings)
    np.testing.assert_allclose(found, potentials / 6, rtol=1e-5)


def test_an_angle_of_nothing_or_of_pi_has_a_finite_gradient():
    loss = gsp.losses.ArcFaceLoss()
    # XLA rounds in another way than eager TensorFlow.
    function = compiled(lambda s: loss([0], s))
    for own in (1.0, -1.0, 1.0 + 1e-6, -1.0 - 1e-6):
        (found,) = gradients(function, cosines(own))
        assert np.all(np.isfinite(found))


def test_arcface_never_rises_with_the_own_cosine():
    loss = gsp.losses.ArcFaceLoss(margin=0.7, scale=8.0)
    values = [float(loss([0], cosines(own))) for own in np.linspace(-1, 1, 41)]
    assert np.all(np.diff(values) < 0.0)


def test_without_a_margin_all_three_are_the_same_loss():
    labels = np.arange(6) % 3
    cosines = np.random.default_rng(0).uniform(-1, 1, size=(6, 3, 2))
    plain = gsp.losses.NormalizedSoftmaxLoss(temperature=1 / 16)
    expected = plain(labels, cosines)
    for loss in (
        gsp.losses.ArcFaceLoss(margin=0.0, scale=16.0),
        gsp.losses.CosFaceLoss(margin=0.0, scale=16.0),
    ):
        np.testing.assert_allclose(loss(labels, cosines), expected, rtol=1e-5)


def centers(num_classes=3, per_class=4):
    return np.random.default_rng(0).normal(size=(num_classes, per_class, 5))


def test_center_regularizer_is_that_of_the_loops(
    double_precision,
):
    regularizer = gsp.losses.CenterRegularizer(0.3)
    value = regularizer(keras.ops.convert_to_tensor(centers()))
    expected = proxy_oracle.center_regularizer(centers(), 0.3)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    (found,) = gradients(regularizer, centers())
    (slopes,) = central_differences(
        lambda w: proxy_oracle.center_regularizer(w, 0.3), centers()
    )
    np.testing.assert_allclose(found, slopes, atol=1e-9)


def test_equal_centers_and_single_ones_cost_nothing():
    equal = np.repeat(centers(3, 1), 4, axis=1).astype("float32")
    regularizer = gsp.losses.CenterRegularizer()
    np.testing.assert_array_equal(regularizer(equal), 0.0)
    np.testing.assert_array_equal(regularizer(equal[:, :1]), 0.0)
    (gradient,) = gradients(regularizer, equal)
    np.testing.assert_array_equal(gradient, 0.0)


def test_center_regularizer_is_added_to_the_loss_of_a_model():
    layer = gsp.layers.ClassProxies(
        3,
        proxies_per_class=2,
        proxies_regularizer=gsp.losses.CenterRegularizer(0.5),
    )
    layer.build((None, 8))
    (penalty,) = layer.losses
    expected = proxy_oracle.center_regularizer(
        keras.ops.convert_to_numpy(layer.proxies).astype("float64"), 0.5
    )
    np.testing.assert_allclose(penalty, expected, rtol=1e-5)


def test_center_regularizer_refuses_wrong_arguments():
    with pytest.raises(ValueError, match="Received: weight=-0.1"):
        gsp.losses.CenterRegularizer(-0.1)
    with pytest.raises(ValueError, match=r"Received: shape \(4, 5\)"):
        gsp.losses.CenterRegularizer()(np.ones((4, 5)))
