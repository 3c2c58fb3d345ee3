"""What an optimizer remembers of one weight."""

from typing import Any

import keras

from keras_gsp.ops.tensor import Tensor


def clear_slots(optimizer: Any, variable: Tensor) -> None:
    """Sets an optimizer's slots of one variable to their initial values.

    Momenta of proxies that were replaced would push the new ones in the old
    directions. Inside a `MultiOptimizer` or a `LossScaleOptimizer` the
    optimizer that owns the variable is found. Step counters and learning
    rates, which belong to all variables, stay; so does a moving average of
    the variable (`use_ema`), which has no initial value of its own.

    Which slots there are is seen from a new optimizer of the same settings,
    built for this variable alone: names of slots are an optimizer's own
    business.

    Args:
        optimizer: built Keras optimizer.
        variable: one of its variables.
    """
    for plain in _plain_optimizers(optimizer):
        slots = {slot.name: slot for slot in plain.variables}
        for name, value in _initial_slots(plain, variable).items():
            if name in slots:
                slots[name].assign(value)


def _plain_optimizers(optimizer):
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return _plain_optimizers(optimizer.inner_optimizer)
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return optimizer.optimizers
    return [optimizer]


def _initial_slots(optimizer, variable):
    config = {**optimizer.get_config(), "use_ema": False}
    shared, own = (type(optimizer).from_config(dict(config)) for _ in range(2))
    shared.build([])
    own.build([variable])
    names = {slot.name for slot in shared.variables}
    return {
        slot.name: keras.ops.convert_to_numpy(slot)
        for slot in own.variables
        if slot.name not in names
    }
