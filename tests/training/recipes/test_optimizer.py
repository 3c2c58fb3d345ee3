"""Rates and weight decay of a recipe are those that it names."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp._compat import learning_rate_of
from training.recipes.learner import build_learner
from training.recipes.named import named
from training.recipes.optimizer import CoupledAdam, Rate, RateOnPlateau

GAP = named("glyphs")


def adam_step(gradient, weight, rate, l2):
    """The first step of Adam, written from Kingma and Ba's algorithm 1."""
    gradient = gradient + l2 * weight
    first, second = 0.1 * gradient, 0.001 * gradient**2
    first, second = first / (1 - 0.9), second / (1 - 0.999)
    return weight - rate * first / (np.sqrt(second) + 1e-7)


def test_coupled_decay_is_part_of_the_gradient():
    weight = keras.Variable([1.0, -2.0])
    optimizer = CoupledAdam(0.1, l2=0.5)
    gradient = np.array([0.3, 1.1], "float32")
    expected = adam_step(gradient, weight.numpy(), 0.1, 0.5)
    optimizer.apply_gradients([(keras.ops.convert_to_tensor(gradient), weight)])
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5)
    config = CoupledAdam(l2=0.5, clipnorm=1.0).get_config()
    again = CoupledAdam.from_config(config)
    assert (again.l2, again.clipnorm) == (0.5, 1.0)
    # Without any gradient of the loss the decay alone moves the weights.
    still = keras.Variable([3.0])
    CoupledAdam(0.1, l2=0.5).apply_gradients([(keras.ops.zeros(1), still)])
    assert still.numpy()[0] == pytest.approx(2.9, abs=1e-4)


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
    recipe = GAP.with_(
        **{"loss": "proxy-nca", "optimizer": "adam", "weight_decay": 3e-4},
        **{"clip_norm": 10.0, "schedule": "cosine", "warmup_steps": 5},
    )
    found = optimizers_of(recipe)
    for one in found.values():
        assert isinstance(one, CoupledAdam)
        assert (one.l2, one.global_clipnorm) == (3e-4, 10.0)
    rates = {name: learning_rate_of(one) for name, one in found.items()}
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


def test_rates_fall_on_a_plateau_and_a_resumed_run_keeps_them(tmp_path):
    found, scores = [], (1.0, 0.9, 0.8, 2.0, 0.5)
    for epochs in (3, 5):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(CoupledAdam(Rate(0.1)), "mse", run_eagerly=True)
        plateau = RateOnPlateau("score", patience=2, factor=0.5)
        rate = learning_rate_of(model.optimizer)
        watch = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs, rate=rate: found.append(
                float(rate.factor)
            ),
            on_epoch_end=lambda epoch, logs: logs.update(score=scores[epoch]),
        )
        resume = gsp.callbacks.ExactResume(tmp_path, callbacks=[plateau])
        resume.restore(model)
        model.fit(
            np.ones((4, 2)),
            np.ones(4),
            epochs=epochs,
            verbose=0,
            callbacks=[watch, plateau, resume],
        )
    assert found == [1.0, 1.0, 1.0, 0.5, 0.5]


def test_other_backends_have_no_plateau(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="must run on TensorFlow"):
        RateOnPlateau("score", patience=2, factor=0.5)
