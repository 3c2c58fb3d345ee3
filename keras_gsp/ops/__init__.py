"""Pure functions on tensors, for every Keras backend."""

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.halves import class_disjoint_halves
from keras_gsp.ops.mining import (
    batch_hard_pairs,
    distance_weighted_pairs,
    multi_similarity_pairs,
    semi_hard_pairs,
)
from keras_gsp.ops.pairs import PairWeights
from keras_gsp.ops.recursive_prototypes import recursive_prototypes
from keras_gsp.ops.sinkhorn import sinkhorn_plan
from keras_gsp.ops.transport import partial_transport

__all__ = [
    "PairWeights",
    "batch_hard_pairs",
    "class_disjoint_halves",
    "covering_radius",
    "distance_weighted_pairs",
    "greedy_k_center",
    "multi_similarity_pairs",
    "pairwise_distances",
    "partial_transport",
    "recursive_prototypes",
    "semi_hard_pairs",
    "sinkhorn_plan",
]
