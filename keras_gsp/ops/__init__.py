"""Pure functions on tensors, for every Keras backend."""

from keras_gsp.ops.covering import (
    covering_radius,
    greedy_k_center,
)

__all__ = [
    "covering_radius",
    "greedy_k_center",
]
