"""From one problem of chance constrained programming to the next."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.callbacks.chance_constrained.class_pool import (
    RECENT,
    embed_class_pool,
    pool_batches,
    recent_class_pool,
)
from keras_gsp.embeddings.labeled_batches import embedding_of
from keras_gsp.embeddings.processes import (
    as_numpy,
    from_first_process,
    predictor,
)
from keras_gsp.models.problems import moving_variables, scalar
from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.normalization import normalize
from keras_gsp.ops.tensor import Tensor


def clear_slots(optimizer: Any, variable: Tensor) -> None:
    """Sets an optimizer's slots of one variable to their initial values.

    Momenta of proxies that were replaced would push the new ones in the old
    directions. Inside a `MultiOptimizer` or a `LossScaleOptimizer` the
    optimizer that owns the variable is found. Step counters and learning
    rates, which belong to all variables, stay; so does a moving average of
    the variable (`use_ema`), which has no initial value of its own.

    Which slots there are is seen from a new optimizer of the same settings,
    built for this variable alone: names of slots are an optimizer's own
    business.

    Args:
        optimizer: built Keras optimizer.
        variable: one of its variables.
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


@dataclass(frozen=True)
class ProxyChoice:
    """How the next proxies are chosen from samples.

    Args:
        pool: where samples come from, as the callback was given it.
        first_pool: the same for the first problem, or `None`.
        pool_size: samples per class to choose from.
        batch_size: samples embedded at once.
        seed: integer, with the number of the problem the order of arrays.
    """

    pool: Any
    first_pool: Any
    pool_size: int
    batch_size: int
    seed: int

    def choose(
        self, learner: Any, existing: Any, problem: int
    ) -> tuple[np.ndarray, float]:
        """Returns the next proxies and their mean covering radius.

        Args:
            learner: the `MetricLearner`, whose encoder embeds the pool.
            existing: (num_classes, existing, embedding_size), the proxies
                that the new ones are added to.
            problem: number of the problem that begins.
        """
        present = as_numpy(learner.proxies.proxies)
        per_class = present.shape[1]
        pool, is_there = self._pool(learner, problem)
        normalization = getattr(learner.loss, "normalization", "l2")
        seen = is_there.any(axis=1)
        # Recent embeddings may lack a class: it keeps the proxies it has.
        if not seen.any():
            return present, 0.0
        # Unlike processors may break a tie differently.
        chosen, radius = from_first_process(
            lambda: next_proxies(
                pool[seen],
                is_there[seen],
                existing[seen],
                per_class,
                normalization,
            )
        )
        proxies = present.copy()
        proxies[seen] = chosen
        return proxies, radius

    def _pool(self, learner, problem):
        num_classes, per_class, size = learner.proxies.proxies.shape
        is_wide = self.pool_size >= per_class
        pool_size = self.pool_size * (1 if is_wide else per_class)
        source = self.pool
        if problem == 1 and self.first_pool is not None:
            source = self.first_pool
        if source is RECENT:
            memory = recent_memory(learner)
            return recent_class_pool(memory, num_classes, pool_size)

        def draw(classes):
            return pool_batches(
                source,
                classes,
                problem=problem,
                seed=self.seed,
                batch_size=self.batch_size,
            )

        predict = predictor(learner.encoder)

        def embed(images):
            outputs = predict(images)
            # Under tf.distribute every replica answers the whole batch.
            return np.asarray(embedding_of(outputs))[: len(images)]

        return embed_class_pool(
            draw,
            embed,
            num_classes=num_classes,
            pool_size=pool_size,
            min_size=per_class,
            batch_size=self.batch_size,
        )


def recent_memory(learner: Any) -> Any:
    """Returns the memory that a recent pool is read from, or `None`."""
    return learner.memory if learner.recent is None else learner.recent


def check_learner(learner: Any, warmup_epochs: int, pool: Any) -> None:
    """Raises unless a learner has proxies to alternate, and anchors.

    Raises:
        TypeError: a model that is no `MetricLearner`.
        ValueError: no proxies, no anchors, a warm-up on pairs with a loss
            that takes none, a recent pool without a memory.
    """
    if not hasattr(learner, "anchored"):
        raise TypeError(
            "ChanceConstrainedProgramming trains a "
            f"`MetricLearner`. Received: a {type(learner).__name__}."
        )
    if learner.proxies is None:
        raise ValueError(
            "The learner must have proxies to alternate: "
            "`MetricLearner(..., proxies=ClassProxies(num_classes))`. "
            "Received: proxies=None."
        )
    if learner.progress is None:
        raise ValueError(
            "The learner must have anchors: `MetricLearner(..., "
            "anchor_weight=2e-4)`. Received: anchor_weight="
            f"{learner.anchor_weight}."
        )
    if pool is RECENT and recent_memory(learner) is None:
        raise ValueError(
            f'`pool` "{RECENT}" needs a learner that remembers embeddings: '
            "`MetricLearner(..., recent=EmbeddingMemory(capacity))`, or a "
            "`memory` in its loss. Received: recent=None, memory=None."
        )
    if warmup_epochs > 0 and "in_batch_weight" not in learner.loss.takes:
        raise ValueError(
            "`warmup_epochs` must be 0 with a proxy loss, which cannot take "
            "pairs within the batch. Received: "
            f"warmup_epochs={warmup_epochs}, loss={learner.loss!r}."
        )


def next_proxies(
    pool: Any,
    is_there: Any,
    existing: Any,
    per_class: int,
    normalization: str | None,
) -> tuple[np.ndarray, float]:
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
    # In one piece: of the first problem's no centers there is no norm.
    both = normalize(np.concatenate([pool, existing], axis=1), normalization)
    seen, centers = both[:, : pool.shape[1]], both[:, pool.shape[1] :]
    chosen = greedy_k_center(seen, centers, per_class, is_there)
    chosen = ops.convert_to_numpy(chosen)[..., None]
    proxies = np.take_along_axis(pool, chosen, axis=1)
    added = normalize(proxies, normalization)
    centers = ops.concatenate([centers, added], axis=1)
    return proxies, float(ops.mean(covering_radius(seen, centers, is_there)))


def start_first_problem(learner: Any, choice: ProxyChoice) -> None:
    """Replaces the initial proxies by samples."""
    proxies = learner.proxies.proxies
    nothing = np.zeros((proxies.shape[0], 0, proxies.shape[2]), "float32")
    _replace_proxies(learner, *choice.choose(learner, nothing, problem=1))


def start_next_problem(
    learner: Any, choice: ProxyChoice, *, restore_anchors: bool
) -> None:
    """Anchors the best snapshot and adds new proxies to the best ones.

    Nothing is changed when the pool cannot be read.

    Args:
        learner: the `MetricLearner`.
        choice: how proxies are chosen.
        restore_anchors: whether the encoder goes back to the snapshot.
    """
    progress = learner.progress
    moving = moving_variables(learner.encoder)
    before = [ops.convert_to_numpy(variable) for variable in moving]
    if restore_anchors:
        progress.restore_best(learner.encoder)
    problem = scalar(learner.anchored.problem) + 1
    try:
        existing = as_numpy(progress.best_proxies)
        chosen = choice.choose(learner, existing, problem)
    except Exception:
        # Without a pool there is no switch: leave what was trained.
        for variable, value in zip(moving, before, strict=True):
            variable.assign(value)
        raise
    trainable = len(learner.encoder.trainable_variables)
    learner.anchored.start_problem(
        [ops.copy(best) for best in progress.best_encoder[:trainable]]
    )
    _replace_proxies(learner, *chosen)


def restore_best(learner: Any) -> None:
    """Sets encoder and proxies to the best snapshot of this problem."""
    learner.progress.restore_best(learner.encoder)
    learner.proxies.proxies.assign(ops.copy(learner.progress.best_proxies))


def problem_logs(learner: Any) -> dict[str, float]:
    """Returns the numbers that describe the current problem, by name."""
    anchored, progress = learner.anchored, learner.progress
    problem = scalar(anchored.problem)
    is_anchored = problem > 1
    variables = learner.encoder.trainable_variables
    distance = anchored.distance(variables) if is_anchored else 0.0
    return {
        "ccp_problem": 0 if scalar(progress.is_warming_up) else problem,
        "ccp_steps": scalar(progress.steps),
        "ccp_covering_radius": scalar(progress.covering_radius),
        "ccp_anchor_distance": distance,
    }


def _replace_proxies(learner, proxies, radius):
    learner.proxies.proxies.assign(proxies)
    clear_slots(learner.optimizer, learner.proxies.proxies)
    learner.progress.start_problem(radius)
