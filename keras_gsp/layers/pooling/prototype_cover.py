"""Prototypes taken from data: local features that cover all others."""

import keras
from keras import ops

from keras_gsp.ops.covering import greedy_k_center
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.tensor import Tensor


def prototype_cover(
    features: Tensor, num_prototypes: int, *, max_features: int, seed: int
) -> Tensor:
    """Chooses local features by greedy k-centre on the unit ball.

    Args:
        features: (..., channels).
        num_prototypes: number of features to choose.
        max_features: number of features looked at, drawn at random.
        seed: integer, seed of that draw.

    Returns:
        (num_prototypes, channels), the first one farthest from the mean.

    Raises:
        ValueError: fewer features than prototypes.
    """
    flat = unit_ball(ops.reshape(features, (-1, features.shape[-1])))
    count = min(int(max_features), flat.shape[0])
    if count < num_prototypes:
        raise ValueError(
            "`adapt` needs at least `num_prototypes` local features. "
            f"Received: {count} features for num_prototypes={num_prototypes}."
        )
    order = keras.random.shuffle(ops.arange(flat.shape[0]), seed=seed)
    pool = ops.take(flat, order[:count], axis=0)
    mean = ops.mean(pool, axis=0, keepdims=True)
    centers = greedy_k_center(pool, mean, num_prototypes)
    return ops.take(pool, centers, axis=0)
