"""From one problem of chance constrained programming to the next."""

from dataclasses import dataclass

import numpy as np
from keras import ops

from keras_gsp.callbacks.chance_constrained.class_pool import (
    embed_class_pool,
    pool_batches,
)
from keras_gsp.callbacks.chance_constrained.next_proxies import next_proxies
from keras_gsp.callbacks.chance_constrained.optimizer_slots import clear_slots
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.models.encoder import embedding_of
from keras_gsp.models.problem_progress import moving_variables
from keras_gsp.models.scalar import scalar


@dataclass(frozen=True)
class ProxyChoice:
    """How the next proxies are chosen from samples.

    Args:
        pool: where samples come from, as the callback was given it.
        pool_size: samples per class to choose from.
        batch_size: samples embedded at once.
        seed: integer, with the number of the problem the order of arrays.
    """

    pool: object
    pool_size: int
    batch_size: int
    seed: int

    def choose(self, learner, existing, problem):
        """Returns the next proxies and their mean covering radius.

        Args:
            learner: the `MetricLearner`, whose encoder embeds the pool.
            existing: (num_classes, existing, embedding_size), the proxies
                that the new ones are added to.
            problem: number of the problem that begins.
        """
        num_classes, per_class, _ = learner.proxies.proxies.shape
        is_wide = self.pool_size >= per_class

        def draw(classes):
            return pool_batches(
                self.pool,
                classes,
                problem=problem,
                seed=self.seed,
                batch_size=self.batch_size,
            )

        def embed(images):
            outputs = learner.encoder.predict_on_batch(images)
            # Under tf.distribute every replica answers the whole batch.
            return np.asarray(embedding_of(outputs))[: len(images)]

        pool, is_there = embed_class_pool(
            draw,
            embed,
            num_classes=num_classes,
            pool_size=self.pool_size * (1 if is_wide else per_class),
            min_size=per_class,
            batch_size=self.batch_size,
        )
        normalization = getattr(learner.loss, "normalization", "l2")
        return next_proxies(pool, is_there, existing, per_class, normalization)


def check_learner(learner, warmup_epochs):
    """Raises unless a learner has proxies to alternate, and anchors.

    Raises:
        TypeError: a model that is no `MetricLearner`.
        ValueError: no proxies, no anchors, a warm-up on pairs with a loss
            that takes none.
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
    if warmup_epochs > 0 and not isinstance(learner.loss, PairLoss):
        raise ValueError(
            "`warmup_epochs` must be 0 with a proxy loss, which cannot take "
            "pairs within the batch. Received: "
            f"warmup_epochs={warmup_epochs}, loss={learner.loss!r}."
        )


def start_first_problem(learner, choice: ProxyChoice):
    """Replaces the initial proxies by samples."""
    proxies = learner.proxies.proxies
    nothing = np.zeros((proxies.shape[0], 0, proxies.shape[2]), "float32")
    _replace_proxies(learner, *choice.choose(learner, nothing, problem=1))


def start_next_problem(learner, choice: ProxyChoice, *, restore_anchors):
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
        existing = ops.convert_to_numpy(progress.best_proxies)
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


def restore_best(learner):
    """Sets encoder and proxies to the best snapshot of this problem."""
    learner.progress.restore_best(learner.encoder)
    learner.proxies.proxies.assign(ops.copy(learner.progress.best_proxies))


def problem_logs(learner) -> dict:
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
