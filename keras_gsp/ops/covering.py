"""Greedy k-center: choose the samples or local features that cover a pool."""

import keras
from keras import ops

from keras_gsp._checks import check_same_size
from keras_gsp._tensor import Tensor
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.precision import at_least_float32


def greedy_k_center(
    pool: Tensor, existing: Tensor, num_centers: int, mask: Tensor | None = None
) -> Tensor:
    """Chooses samples so that no sample of the pool is far from a center.

    Takes `num_centers` times the sample that is farthest from its nearest
    center, `existing` ones included. The covering radius is then at most
    twice the smallest possible. No sample is taken twice; among equal
    distances the first index wins. Distances are sums of squared differences,
    so that duplicates and ties are exact. The loop is static and compiles
    under XLA.

    The paper's code starts the first problem from centers at the origin and
    takes duplicates repeatedly. Here it starts from no center (`existing` of
    length 0; the first sample is taken), and duplicates are taken last.

    Args:
        pool: (..., pool, size), for example one row of samples a class.
        existing: (..., existing, size), centers to start from; the length
            may be 0. They are not part of the result.
        num_centers: int, number of samples to choose, in [1, pool].
        mask: (..., pool), boolean, False for padding. A row with fewer than
            `num_centers` samples repeats its first one.

    Returns:
        (..., num_centers), int32, indices into the pool in the order chosen.

    Example:
        ```python
        pool = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0], [0.0, 3.0]])
        chosen = gsp.ops.greedy_k_center(pool, np.zeros((1, 2)), 2)  # [2, 3]
        ```

    Reference:
        "Deep metric learning with alternating sets of alternating proxies",
        section 4; thesis, chapter 3, algorithm 2.
    """
    pool, existing = _alike(pool, existing)
    if not 1 <= num_centers <= pool.shape[-2]:
        raise ValueError(
            "`num_centers` must be at least 1 and at most the length of the "
            f"pool. Received: num_centers={num_centers} and a pool of "
            f"{pool.shape[-2]}."
        )
    distances = _squared_distances_to_nearest(pool, existing)
    is_there = ops.ones_like(pool[..., 0], dtype="bool")
    is_free = is_there = is_there if mask is None else ops.cast(mask, "bool")
    chosen = []
    for _ in range(num_centers):
        # Below every distance: samples taken before (-1), then padding (-2).
        taken = ops.where(is_there, -1.0, -2.0)
        scores = ops.where(is_free, distances, ops.cast(taken, pool.dtype))
        index = ops.cast(ops.argmax(scores, axis=-1), "int32")
        chosen.append(index)
        is_new = ops.one_hot(index, pool.shape[-2], dtype="bool")
        is_free = ops.logical_and(is_free, ops.logical_not(is_new))
        center = ops.take_along_axis(pool, index[..., None, None], axis=-2)
        distances = ops.minimum(distances, _squared_distances(pool, center))
    return ops.stack(chosen, axis=-1)


def covering_radius(
    pool: Tensor, centers: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Largest Euclidean distance from a sample to its nearest center, (...).

    Shapes are those of `greedy_k_center`, with at least one center.
    """
    pool, centers = _alike(pool, centers)
    distances = _squared_distances_to_nearest(pool, centers)
    if mask is not None:
        distances = ops.where(ops.cast(mask, "bool"), distances, 0.0)
    return ops.sqrt(ops.max(distances, axis=-1))


def _squared_distances_to_nearest(pool, centers):
    """(..., pool); infinite where there is no center."""
    distances = ops.full_like(pool[..., 0], float("inf"))
    # One center at a time: memory for one copy of the pool, not one per center.
    for k in range(centers.shape[-2]):
        from_center = _squared_distances(pool, centers[..., k : k + 1, :])
        distances = ops.minimum(distances, from_center)
    return distances


def _squared_distances(pool, center):
    return ops.sum(ops.square(pool - center), axis=-1)


def _alike(pool, centers):
    """Both in the pool's dtype, float32 at least, and of one size."""
    pool = at_least_float32(pool)
    centers = ops.cast(at_least_float32(centers), pool.dtype)
    check_same_size(pool, centers, ("pool", "existing"), axis=-1)
    return pool, centers


def prototype_cover(
    features: Tensor, num_prototypes: int, max_features: int, seed: int
) -> Tensor:
    """Chooses local features by greedy k-center on the unit ball.

    From `max_features` of (..., channels), drawn at random, it takes
    (num_prototypes, channels), the first one farthest from the mean.
    """
    flat = unit_ball(ops.reshape(features, (-1, features.shape[-1])))
    count = min(int(max_features), flat.shape[0])
    if count < num_prototypes:
        raise ValueError(
            "`adapt` needs at least as many local features as it sets "
            f"prototypes. Received: {count} features for {num_prototypes} "
            "prototypes."
        )
    order = keras.random.shuffle(ops.arange(flat.shape[0]), seed=seed)
    pool = ops.take(flat, order[:count], axis=0)
    mean = ops.mean(pool, axis=0, keepdims=True)
    centers = greedy_k_center(pool, mean, num_prototypes)
    return ops.take(pool, centers, axis=0)
