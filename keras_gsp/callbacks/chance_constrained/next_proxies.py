"""Which samples become the next proxies."""

import numpy as np
from keras import ops

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.normalization import normalize


def next_proxies(pool, is_there, existing, per_class, normalization):
    """Chooses the samples that, added to the old proxies, cover a pool best.

    Args:
        pool: (num_classes, pool, size), embeddings.
        is_there: (num_classes, pool), boolean.
        existing: (num_classes, existing, size), the old proxies.
        per_class: number of samples to choose of each class.
        normalization: of embeddings and proxies in the loss.

    Returns:
        The samples, an array (num_classes, per_class, size), and the mean
        over classes of the pool's covering radius by old proxies and samples
        together, a float: what the greedy choice makes small.
    """
    # In one piece: of the first problem's no centres there is no norm.
    both = normalize(np.concatenate([pool, existing], axis=1), normalization)
    seen, centers = both[:, : pool.shape[1]], both[:, pool.shape[1] :]
    chosen = greedy_k_center(seen, centers, per_class, is_there)
    chosen = ops.convert_to_numpy(chosen)[..., None]
    proxies = np.take_along_axis(pool, chosen, axis=1)
    added = normalize(proxies, normalization)
    centers = ops.concatenate([centers, added], axis=1)
    return proxies, float(ops.mean(covering_radius(seen, centers, is_there)))
