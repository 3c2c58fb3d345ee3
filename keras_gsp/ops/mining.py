"""Miners: new weights of the pairs of a batch, 0 for those they drop.

d_ap and d_an: Euclidean distances of an anchor, s the inner product.
"""

import math
from collections.abc import Callable

import keras
from keras import ops

from keras_gsp._checks import concrete_value
from keras_gsp._tensor import Tensor
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.halves import Seed
from keras_gsp.ops.pairs import PairWeights, chosen_entries, fold_positives
from keras_gsp.ops.precision import full_matmul, larger, smaller

# Distance-weighted sampling: distances are raised to at least the first, and
# negatives beyond the second are not drawn.
_CUTOFF = 0.5
_LARGEST_DISTANCE = 1.4
# The margin of multi-similarity mining, as in the paper.
_SIMILARITY_MARGIN = 0.1


def batch_hard_pairs(
    embeddings: Tensor, references: Tensor, weights: PairWeights, _: Seed
) -> PairWeights:
    """Keeps each anchor's farthest positive and nearest negative.

    `p* = argmax_p d_ap`, `n* = argmin_n d_an`, the first one in a tie. An
    anchor without positives or without negatives keeps no pair. Embeddings
    (batch, size) and references (references, size) are normalized.

    Reference:
        Hermans et al., "In Defense of the Triplet Loss for Person
        Re-Identification", 2017, equation (5).
    """
    distances = _distances(embeddings, references)
    is_positive, is_negative, has_both = _both_kinds(weights)
    farthest = ops.where(is_positive, distances, -1.0)
    nearest = ops.where(is_negative, -distances, -math.inf)
    return PairWeights(
        weights.positive * is_first_largest(farthest) * has_both,
        weights.negative * is_first_largest(nearest) * has_both,
    )


def semi_hard_pairs(
    embeddings: Tensor, references: Tensor, weights: PairWeights, _: Seed
) -> PairWeights:
    """Pairs each positive with the nearest negative farther than it.

    `n(p) = argmin { d_an : d_an > d_ap }`. A positive without such a negative
    is dropped, and a negative counts once for each positive that chose it.
    `TripletLoss` uses the triplets (a, p, n(p)).

    Reference:
        Schroff et al., "FaceNet", CVPR 2015, equation (4).
    """
    distances = _distances(embeddings, references)
    is_positive, is_negative, _ = _both_kinds(weights)

    def choose(is_chosen, counts):
        reach = chosen_entries(distances, is_chosen)
        is_farther = is_negative & (distances > reach)
        weight = chosen_entries(weights.positive, is_chosen)
        pair_weight = weight * ops.cast(
            ops.any(is_farther, axis=1, keepdims=True), reach.dtype
        )
        nearest = ops.where(is_farther, -distances, -math.inf)
        counted_positives = pair_weight * ops.cast(is_chosen, reach.dtype)
        return counts + ops.stack(
            [counted_positives, pair_weight * is_first_largest(nearest)]
        )

    nothing = ops.zeros_like(weights.positive)
    counts = fold_positives(is_positive, choose, ops.stack([nothing, nothing]))
    return PairWeights(counts[0], weights.negative * counts[1])


def distance_weighted_pairs(
    embeddings: Tensor, references: Tensor, weights: PairWeights, seed: Seed
) -> PairWeights:
    """Draws a negative for each positive, uniformly over distances.

    On the unit sphere in d dimensions distances have the density
    `q(x) = x^(d-2) (1 - x^2 / 4)^((d-3)/2)`. For each positive of an anchor
    one negative nearer than 1.4 is drawn, with replacement, with probability
    proportional to `1 / q(max(d_an, 0.5))`; its weight is the number of times
    it was drawn. An anchor without such a negative keeps no pair.

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017,
        section 4.1; 0.5 and 1.4 are from its code.
    """
    distances = _distances(embeddings, references)
    on_jax = keras.backend.backend() == "jax"
    if seed is None and on_jax and concrete_value(distances) is None:
        raise ValueError(
            "`seed` must be given for draws inside a compiled step on JAX, for "
            'example with `miner="distance_weighted", seed=0`. '
            "Received: seed=None."
        )
    is_positive, is_negative, _ = _both_kinds(weights)
    size = ops.cast(ops.shape(embeddings)[-1], distances.dtype)
    capped = larger(distances, _CUTOFF)
    is_drawn = is_negative & (distances < _LARGEST_DISTANCE)
    # Nothing is drawn above 1.4: the logarithm never receives a zero.
    inside = smaller(capped, _LARGEST_DISTANCE)
    log_chances = (2.0 - size) * ops.log(inside) - (size - 3.0) / 2.0 * ops.log(
        1.0 - ops.square(inside) / 4.0
    )
    log_chances = ops.where(is_drawn, log_chances, -math.inf)
    has_any = ops.any(is_drawn, axis=1, keepdims=True)
    largest = ops.max(log_chances, axis=1, keepdims=True)
    chances = ops.exp(log_chances - ops.where(has_any, largest, 0.0))
    upper = ops.cumsum(chances, axis=1)
    total = upper[:, -1:]
    draws = keras.random.uniform(ops.shape(distances), seed=seed)
    # Strictly below the total, whatever rounding does.
    draws = ops.minimum(ops.cast(draws, total.dtype), 1.0 - 2.0**-20) * total

    def draw(is_chosen, times):
        level = chosen_entries(draws, is_chosen)
        weight = chosen_entries(weights.positive, is_chosen)
        is_above = ops.logical_and(is_drawn, upper > level)
        first = is_first_largest(ops.cast(is_above, upper.dtype))
        return times + weight * first * ops.cast(is_above, upper.dtype)

    times = fold_positives(is_positive, draw, ops.zeros_like(distances))
    return PairWeights(
        weights.positive * ops.cast(has_any, distances.dtype),
        weights.negative * times,
    )


def multi_similarity_pairs(
    embeddings: Tensor,
    references: Tensor,
    weights: PairWeights,
    seed: Seed = None,
    *,
    margin: float = _SIMILARITY_MARGIN,
) -> PairWeights:
    """Keeps hard pairs, compared with the anchor's pairs of the other kind.

    A negative is kept when `s_an > min_p s_ap - margin`, a positive when
    `s_ap < max_n s_an + margin`. An anchor without positives or without
    negatives keeps no pair.

    Reference:
        Wang et al., "Multi-Similarity Loss", CVPR 2019, equations (11) and
        (12).
    """
    del seed
    similarities = ops.stop_gradient(
        full_matmul(embeddings, ops.transpose(references))
    )
    is_positive, is_negative, _ = _both_kinds(weights)
    hardest_positive = ops.min(
        ops.where(is_positive, similarities, math.inf), axis=1, keepdims=True
    )
    hardest_negative = ops.max(
        ops.where(is_negative, similarities, -math.inf), axis=1, keepdims=True
    )
    keeps_positive = similarities - margin < hardest_negative
    keeps_negative = similarities + margin > hardest_positive
    return PairWeights(
        weights.positive * ops.cast(keeps_positive, similarities.dtype),
        weights.negative * ops.cast(keeps_negative, similarities.dtype),
    )


MINERS: dict[str, Callable[..., PairWeights]] = {
    "batch_hard": batch_hard_pairs,
    "semi_hard": semi_hard_pairs,
    "distance_weighted": distance_weighted_pairs,
    "multi_similarity": multi_similarity_pairs,
}


def _distances(embeddings, references):
    return ops.stop_gradient(pairwise_distances(embeddings, references))


def _both_kinds(weights):
    is_positive = weights.positive > 0.0
    is_negative = weights.negative > 0.0
    has_both = ops.logical_and(
        ops.any(is_positive, axis=1, keepdims=True),
        ops.any(is_negative, axis=1, keepdims=True),
    )
    return is_positive, is_negative, ops.cast(has_both, weights.positive.dtype)


def is_first_largest(values: Tensor) -> Tensor:
    """1 at the largest entry of each row, else 0, in the values' dtype."""
    columns = ops.arange(ops.shape(values)[1])[None, :]
    largest = ops.argmax(values, axis=1, keepdims=True)
    return ops.cast(columns == largest, values.dtype)
