"""Pure functions on tensors, for every Keras backend."""

from keras_gsp.ops.covering import greedy_k_center
from keras_gsp.ops.halves import class_disjoint_halves
from keras_gsp.ops.pairs import PairWeights
from keras_gsp.ops.transport import partial_transport

__all__ = [
    "PairWeights",
    "class_disjoint_halves",
    "greedy_k_center",
    "partial_transport",
]
