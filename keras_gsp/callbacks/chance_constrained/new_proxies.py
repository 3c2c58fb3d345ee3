"""Chooses new proxies from a pool of embedded samples."""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.normalization import normalize


class NewProxies(NamedTuple):
    """Proxies (num_classes, per_class, size), and how they cover their pool.

    See the logs of `ChanceConstrainedProgramming`.
    """

    proxies: np.ndarray
    covering_radius: float
    far_share: float


def next_proxies(
    pool: np.ndarray,
    is_there: np.ndarray,
    existing: np.ndarray,
    per_class: int,
    normalization: str | None,
    far: float,
) -> NewProxies:
    """Chooses the samples that, with the old proxies, cover a pool best.

    Takes `per_class` samples of each class of the pool (num_classes, pool,
    size), `is_there` of its entries, beside the `existing` proxies
    (num_classes, existing, size).
    """
    # In one array: there is no norm of the first problem's zero centers.
    both = normalize(np.concatenate([pool, existing], axis=1), normalization)
    seen, centers = both[:, : pool.shape[1]], both[:, pool.shape[1] :]
    chosen = greedy_k_center(seen, centers, per_class, is_there)
    chosen = ops.convert_to_numpy(chosen)[..., None]
    proxies = np.take_along_axis(pool, chosen, axis=1)
    # Of the new proxies alone: each problem has equally many of these.
    added = normalize(proxies, normalization)
    radius = float(ops.mean(covering_radius(seen, added, is_there)))
    seen, added = ops.convert_to_numpy(seen), ops.convert_to_numpy(added)
    is_far = np.ones_like(is_there)
    for center in np.swapaxes(added, 0, 1):
        distances = np.linalg.norm(seen - center[:, None], axis=-1)
        is_far &= distances > far
    return NewProxies(proxies, radius, float(is_far[is_there].mean()))
