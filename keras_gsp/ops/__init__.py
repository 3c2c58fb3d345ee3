"""Pure functions on tensors, for every Keras backend."""

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.distances import (
    pairwise_distances,
    pairwise_squared_distances,
)
from keras_gsp.ops.halves import class_disjoint_halves
from keras_gsp.ops.mining import (
    batch_hard_pairs,
    distance_weighted_pairs,
    multi_similarity_pairs,
    semi_hard_pairs,
)
from keras_gsp.ops.normalization import normalize, unit_ball, unit_sphere
from keras_gsp.ops.pairs import PairWeights
from keras_gsp.ops.prototype_assignment import (
    hard_histogram,
    prototype_combination,
    soft_histogram,
)
from keras_gsp.ops.recursive_prototypes import recursive_prototypes
from keras_gsp.ops.ridge import cross_half_prediction
from keras_gsp.ops.sinkhorn import sinkhorn_plan
from keras_gsp.ops.soft_ranks import soft_ranks
from keras_gsp.ops.transport import partial_transport, selection_probabilities

__all__ = [
    "PairWeights",
    "batch_hard_pairs",
    "class_disjoint_halves",
    "covering_radius",
    "cross_half_prediction",
    "distance_weighted_pairs",
    "greedy_k_center",
    "hard_histogram",
    "multi_similarity_pairs",
    "normalize",
    "pairwise_distances",
    "pairwise_squared_distances",
    "partial_transport",
    "prototype_combination",
    "recursive_prototypes",
    "selection_probabilities",
    "semi_hard_pairs",
    "sinkhorn_plan",
    "soft_histogram",
    "soft_ranks",
    "unit_ball",
    "unit_sphere",
]
