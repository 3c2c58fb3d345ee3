"""Pure functions on tensors, for every Keras backend."""

from keras_gsp.ops.covering import (
    covering_radius,
    greedy_k_center,
)
from keras_gsp.ops.distances import (
    pairwise_distances,
    pairwise_squared_distances,
)
from keras_gsp.ops.normalization import normalize, unit_ball, unit_sphere
from keras_gsp.ops.transport import partial_transport, selection_probabilities

__all__ = [
    "covering_radius",
    "greedy_k_center",
    "normalize",
    "pairwise_distances",
    "pairwise_squared_distances",
    "partial_transport",
    "selection_probabilities",
    "unit_ball",
    "unit_sphere",
]
