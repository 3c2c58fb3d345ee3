"""Rates and weight decay of a recipe are those that it names."""

import keras
import numpy as np
import pytest

from training.recipes.learner import Rate, build_learner
from training.recipes.recipe import named

GAP = named("glyphs")


def test_a_rate_waits_rises_and_falls():
    rate = Rate(1.0, hold=2, ramp=2)
    found = [float(rate(step)) for step in range(6)]
    assert found == [0.0, 0.0, 0.5, 1.0, 1.0, 1.0]
    rate = Rate(2.0, fall=4)
    found = [float(rate(step)) for step in range(6)]
    np.testing.assert_allclose(
        found, 1 + np.cos(np.pi * np.minimum(np.arange(6) / 4, 1)), atol=1e-6
    )
    rate = Rate(2.0, fall=6, fall_start=4)
    rate = Rate.from_config(rate.get_config())
    found = [float(rate(step)) for step in range(8)]
    np.testing.assert_allclose(found, [2, 2, 2, 2, 2, 1, 0, 0], atol=1e-6)


def optimizers_of(recipe):
    """Optimizer of each layer that is trained, by the first part of a path."""
    recipe = recipe.with_(embedding_size=8, num_prototypes=4)
    learner = build_learner(recipe, num_classes=3, image_shape=(16, 16, 3))
    learner.optimizer.build(learner.trainable_variables)
    return {
        variable.path.split("/")[0]: optimizer
        for optimizer in learner.optimizer.optimizers
        for variable in optimizer._trainable_variables
    }


def test_settings_reach_the_optimizer_and_the_backbone_waits():
    recipe = GAP.with_(loss="proxy-nca", fall_share=1.0, warmup_steps=5)
    found = optimizers_of(recipe)
    for one in found.values():
        assert isinstance(one, keras.optimizers.AdamW)
        assert one.weight_decay == 1e-4
    rates = {name: one._learning_rate for name, one in found.items()}
    peaks = {"metric_learner": 5 * recipe.learning_rate}  # of its proxies
    for name, rate in rates.items():
        assert rate.peak == peaks.get(name, recipe.learning_rate)
        assert rate.hold == (5 if name == "glyph_cnn" else 0)
        assert rate.fall == recipe.steps
    assert rates.keys() == {"glyph_cnn", "projection", "metric_learner"}


def test_the_backbone_may_learn_slower_than_the_head():
    found = optimizers_of(GAP.with_(backbone_learning_rate_multiplier=0.01))
    rates = {k: float(one.learning_rate) for k, one in found.items()}
    rate = GAP.learning_rate
    assert rates == pytest.approx(
        {"projection": rate, "glyph_cnn": 0.01 * rate}
    )
