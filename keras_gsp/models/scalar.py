"""Counters and scores that live in variables."""

from typing import Any

from keras import ops

from keras_gsp.ops.tensor import Tensor


def scalar(variable: Tensor) -> Any:
    """Returns the value of a scalar variable as an int or a float.

    `int(variable)` fails for a variable that `MirroredStrategy` has copied to
    every replica.
    """
    return ops.convert_to_numpy(variable).item()
