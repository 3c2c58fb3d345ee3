"""Slots of one variable are cleared, all others stay."""

import keras
import numpy as np
import pytest

from keras_gsp.callbacks.chance_constrained.new_proxies import clear_slots

optimizers = keras.optimizers
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.1, amsgrad=True),
    "nadam": lambda: optimizers.Nadam(0.1),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "ema": lambda: optimizers.AdamW(0.1, use_ema=True),
    "accumulating": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.1)),
    "multi": lambda: multi(optimizers.Adam(1.0)),
    "multi in loss scale": lambda: optimizers.LossScaleOptimizer(
        multi(optimizers.SGD(1.0, 0.9))
    ),
}


def multi(own):
    others = optimizers.Adam(0.1)
    return optimizers.MultiOptimizer(
        optimizers.OptimizerMap(others, {".*proxies": own})
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_go_back_to_their_initial_values(name):
    optimizer = OPTIMIZERS[name]()
    # Alike in shape, and one path is the beginning of the other.
    proxies, other = (
        keras.Variable(np.ones((2, 3), "float32"), name=own)
        for own in ("proxies", "proxies_of_another")
    )
    optimizer.build([proxies, other])
    initial = values(optimizer)
    for _ in range(3):
        gradients = [keras.ops.ones((2, 3)), keras.ops.ones((2, 3))]
        optimizer.apply(gradients, [proxies, other])
    moved = values(optimizer)
    clear_slots(optimizer, proxies)
    num_cleared = 0
    for slot, value in values(optimizer).items():
        is_own = slot.startswith("proxies_") and "of_another" not in slot
        is_own = is_own and not slot.endswith("_average")
        expected = initial if is_own else moved
        np.testing.assert_array_equal(value, expected[slot])
        num_cleared += is_own and bool((initial[slot] != moved[slot]).any())
    assert num_cleared >= 1


def values(optimizer):
    return {
        f"{variable.name}"
        if "proxies" in variable.name
        else variable.path: keras.ops.convert_to_numpy(variable)
        for variable in optimizer.variables
    }
