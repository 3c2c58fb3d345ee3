"""Separate learning rates for proxies, found by their variables' paths."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp


def proxy_model():
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(4, name="encoder"),
            gsp.layers.ClassProxies(3, name="class_proxies"),
        ]
    )


def data():
    random = np.random.default_rng(0)
    return random.normal(size=(6, 8)).astype("float32"), np.arange(6) % 3


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (
            {"proxies": 1e-2},
            {"encoder/kernel": 1e-4, "class_proxies/proxies": 1e-2},
        ),
        (
            {"class_proxies/proxies": 1e-2, "encoder/bias": 1e-3},
            {"encoder/kernel": 1e-4, "encoder/bias": 1e-3},
        ),
    ],
)
def test_matching_variables_take_their_own_steps(rates, expected, tmp_path):
    model = proxy_model()
    optimizer = gsp.models.proxy_optimizer(
        model, keras.optimizers.Adam(1e-4), rates
    )
    before = model.get_weights()
    model.compile(optimizer, loss=gsp.losses.ProxyNCALoss(), run_eagerly=True)
    model.fit(*data(), batch_size=6, verbose=0)
    for weight, old in zip(model.weights, before, strict=True):
        name = "/".join(weight.path.split("/")[-2:])
        if name in expected:  # Adam's first step is as long as its rate.
            step = np.abs(np.array(weight) - old).max()
            np.testing.assert_allclose(step, expected[name], rtol=1e-2)
    # Training resumes from a file.
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        one.fit(*data(), shuffle=False, verbose=0)
    np.testing.assert_equal(model.get_weights(), loaded.get_weights())


def test_other_settings_are_copied():
    optimizer = gsp.models.proxy_optimizer(
        proxy_model(),
        keras.optimizers.AdamW(1e-4, weight_decay=0.3, beta_2=0.9),
        {"proxies": keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)},
    )
    model = proxy_model()
    optimizer.build(model.trainable_variables)
    own = {o.beta_2 for o in optimizer.optimizers}
    assert own == {0.9}
    assert {o.weight_decay for o in optimizer.optimizers} == {0.3}
    rates = sorted(float(o.learning_rate) for o in optimizer.optimizers)
    np.testing.assert_allclose(rates, [1e-4, 0.1], rtol=1e-6)
