"""Chooses new proxies from a pool and gives them to a learner."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.embeddings.processes import as_numpy
from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.normalization import normalize


def next_proxies(
    pool: np.ndarray,
    is_there: np.ndarray,
    existing: np.ndarray,
    per_class: int,
    normalization: str | None,
) -> tuple[np.ndarray, float]:
    """Chooses the samples that, with the old proxies, cover a pool best.

    Of the pool (num_classes, pool, size), whose places may be empty, it takes
    `per_class` samples of each class. Returns them and the pool's mean covering
    radius by the `existing` proxies (num_classes, existing, size) and samples.
    """
    # In one array: there is no norm of the first problem's zero centers.
    both = normalize(np.concatenate([pool, existing], axis=1), normalization)
    seen, centers = both[:, : pool.shape[1]], both[:, pool.shape[1] :]
    chosen = greedy_k_center(seen, centers, per_class, is_there)
    chosen = ops.convert_to_numpy(chosen)[..., None]
    proxies = np.take_along_axis(pool, chosen, axis=1)
    added = normalize(proxies, normalization)
    centers = ops.concatenate([centers, added], axis=1)
    return proxies, float(ops.mean(covering_radius(seen, centers, is_there)))


def replace_proxies(learner: Any, proxies: np.ndarray, radius: float) -> None:
    """Sets new proxies and starts the next problem with them."""
    learner.proxies.proxies.assign(proxies)
    clear_slots(learner.optimizer, learner.proxies.proxies)
    learner.progress.start_problem(radius)


def clear_slots(
    optimizer: keras.optimizers.Optimizer, variable: keras.Variable
) -> None:
    """Resets an optimizer's slots of one variable to their initial values.

    The momentum of replaced proxies would push the new ones in old
    directions. Step counters and learning rates, which belong to all variables,
    stay; so does a moving average of the variable (`use_ema`), which has no
    initial value.
    """
    for plain in _plain_optimizers(optimizer):
        slots = {slot.name: slot for slot in plain.variables}
        for name, value in _initial_slots(plain, variable).items():
            if name in slots:
                slots[name].assign(value)


def _plain_optimizers(optimizer):
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return _plain_optimizers(optimizer.inner_optimizer)
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return optimizer.optimizers
    return [optimizer]


def _initial_slots(optimizer, variable):
    """Slots of a new optimizer that is built for this variable alone.

    Each optimizer names its slots differently.
    """
    config = {**optimizer.get_config(), "use_ema": False}
    shared, own = (type(optimizer).from_config(dict(config)) for _ in range(2))
    shared.build([])
    own.build([variable])
    names = {slot.name for slot in shared.variables}
    return {
        slot.name: as_numpy(slot)
        for slot in own.variables
        if slot.name not in names
    }
