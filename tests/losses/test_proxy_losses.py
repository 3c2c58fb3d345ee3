"""Laws of every proxy loss: labels, edges and errors."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import StepParts
from tests.compiled import compiled
from tests.gradients import gradients
from tests.losses.proxy_oracle import (
    NUM_CLASSES,
    PROXY_LOSSES,
    batch,
    make,
    oracle,
)

every_loss = pytest.mark.parametrize("case", PROXY_LOSSES)


@every_loss
def test_value_and_gradient_are_always_finite(case):
    spread = batch()[1][:4].astype("float32")
    loss = make(case)
    for similarities in (spread, 0.0 * spread, spread**0, np.sign(spread)):
        for labels in ([0, 1, 2, 3], [2, 2, 2, 2], [4, 4, 0, 0]):
            expected = oracle(case, labels, similarities)
            found = loss(labels, similarities)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            (slope,) = gradients(lambda s, y=labels: loss(y, s), similarities)
            assert np.all(np.isfinite(slope))


@every_loss
def test_one_sample_and_one_class(case):
    similarities = np.full((1, 1, 2), 0.3, "float32")
    loss = make(case)
    expected = oracle(case, [0], similarities)
    np.testing.assert_allclose(loss([0], similarities), expected, atol=1e-6)
    (gradient,) = gradients(lambda s: loss([0], s), similarities)
    assert np.all(np.isfinite(gradient))


@every_loss
def test_any_numbers_are_labels(case):
    labels, similarities = batch()
    loss = make(case)
    expected = loss(labels, similarities)
    for form in (
        labels.astype("float32"),
        labels.astype("int32")[:, None],
        labels.tolist(),
    ):
        np.testing.assert_array_equal(loss(form, similarities), expected)


@every_loss
def test_sample_weights_multiply_the_terms_of_their_samples(case):
    labels, similarities = batch()
    weights = np.linspace(0.0, 2.0, 8)
    terms = make(case, reduction=None)(labels, similarities)
    assert terms.shape == (8,)
    value = make(case)(labels, similarities, sample_weight=weights)
    expected = np.mean(keras.ops.convert_to_numpy(terms) * weights)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@every_loss
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


@pytest.mark.parametrize("wrong", [-1, NUM_CLASSES, 98_765_432_100])
def test_labels_out_of_range_are_refused(wrong):
    labels, similarities = batch()
    labels[3] = wrong
    with pytest.raises(ValueError, match=rf"\[0, 5\).*{wrong}"):
        gsp.losses.ProxyNCALoss()(labels, similarities)


def test_nan_labels_are_refused():
    labels, similarities = batch()
    labels = np.where(np.arange(8) == 3, np.nan, labels)
    with pytest.raises(ValueError, match=r"`labels` must be .*nan"):
        gsp.losses.ProxyNCALoss()(labels, similarities)


def test_labels_out_of_range_in_a_compiled_step_give_nan():
    labels, similarities = batch()
    loss = gsp.losses.ProxyNCALoss()
    function = compiled(lambda y, s: loss(y, s))
    assert np.isfinite(function(labels, similarities))
    labels[3] = NUM_CLASSES
    assert np.isnan(function(labels, similarities))


@every_loss
def test_string_labels_are_refused(case):
    with pytest.raises(TypeError, match="numbers, one per class"):
        make(case)(np.array(["cat"] * 8), batch()[1])


def test_wrong_shapes_are_refused():
    labels, similarities = batch()
    loss = gsp.losses.ProxyNCALoss()
    with pytest.raises(ValueError, match=r"Received: shape \(8, 5\)"):
        loss(labels, similarities[..., 0])
    with pytest.raises(ValueError, match="`labels` and `similarities`"):
        loss(labels[:3], similarities)


def test_a_subclass_without_a_formula_names_its_method():
    with pytest.raises(NotImplementedError, match="sample_terms"):
        gsp.losses.ProxyLoss()(*batch())
