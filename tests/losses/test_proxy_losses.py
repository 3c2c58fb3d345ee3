"""Laws of every proxy loss: labels, edges and errors."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import StepParts
from tests.compiled import compiled
from tests.losses.proxy_oracle import NUM_CLASSES, batch, make
from tests.losses.tables import every_proxy_case


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


def test_labels_out_of_range_are_refused_and_give_nan_compiled():
    labels, similarities = batch()
    loss = gsp.losses.ProxyNCALoss()
    for wrong in (-1, NUM_CLASSES, 98_765_432_100):
        mixed = np.where(np.arange(8) == 3, wrong, labels)
        with pytest.raises(ValueError, match=rf"\[0, 5\).*{wrong}"):
            loss(mixed, similarities)
    function = compiled(lambda y, s: loss(y, s))
    assert np.isfinite(function(labels, similarities))
    labels[3] = NUM_CLASSES
    assert np.isnan(function(labels, similarities))


def test_wrong_shapes_are_refused():
    labels, similarities = batch()
    loss = gsp.losses.ProxyNCALoss()
    with pytest.raises(ValueError, match=r"Received: shape \(8, 5\)"):
        loss(labels, similarities[..., 0])
    with pytest.raises(ValueError, match="`labels` and `similarities`"):
        loss(labels[:3], similarities)
