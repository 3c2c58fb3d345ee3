"""Fixed or learned exponent of a generalized mean."""

import math
from typing import Any

import keras
from keras import ops

from keras_gsp.ops.masked_reductions import check_power


def checked_power(power: float, learn_power: bool) -> float:
    """Returns the initial exponent: at least 1, above 1 where it is learned."""
    if learn_power and not power > 1.0:
        # The weight would start at minus infinity.
        raise ValueError(
            "`power` must be above 1 with learn_power=True. "
            f"Received: power={power}."
        )
    return check_power(power)


def add_power_weight(layer: Any) -> None:
    r"""Adds the weight w of :math:`p = 1 + e^w` if the layer learns p."""
    if layer.learn_power:
        start = keras.initializers.Constant(math.log(layer.power - 1.0))
        layer.log_power_excess = layer.full_precision_weight(
            "log_power_excess", (), start
        )


def power_of(layer: Any) -> Any:
    """Returns the exponent of a layer: a number or a scalar tensor."""
    if not layer.learn_power:
        return layer.power
    return 1.0 + ops.exp(ops.convert_to_tensor(layer.log_power_excess))
