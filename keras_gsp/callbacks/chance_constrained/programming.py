"""Chance constrained programming: alternating proxies, anchored weights."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.callbacks.chance_constrained.class_pool import (
    RECENT,
    check_pool,
    embed_class_pool,
    pool_batches,
    recent_class_pool,
)
from keras_gsp.callbacks.chance_constrained.new_proxies import (
    next_proxies,
    replace_proxies,
)
from keras_gsp.embeddings.labeled_batches import embedding_of
from keras_gsp.embeddings.processes import (
    as_numpy,
    from_first_process,
    predictor,
)
from keras_gsp.models.metric_learner import MetricLearner
from keras_gsp.models.problems import moving_variables, scalar
from keras_gsp.ops.arguments import (
    check_choice,
    check_count,
    check_not_negative,
)


class ChanceConstrainedProgramming(keras.callbacks.Callback):
    r"""Replaces proxies by samples whenever training with them has converged.

    Trains a sequence of problems (Algorithm 1). Each problem trains with its
    proxies until `monitor` has not improved for `patience` evaluations. Then
    its weights and proxies become the anchor, :math:`\theta^* \leftarrow
    \theta, \rho^* \leftarrow \rho`; `pool_size` samples per class are
    embedded; the next proxies are those that
    `keras_gsp.ops.greedy_k_center` adds to :math:`\rho^*`; the optimizer's
    slots of the old proxies are cleared; and training continues from
    :math:`\theta` with the encoder's weights pulled towards
    :math:`\theta^*`. The first proxies are samples as well.

    The learner holds proxies and anchors, as in the example, with any proxy
    loss or pair loss. All state is in its non-trainable weights, so
    `ExactResume` also resumes in the middle of a problem. Place this callback
    after the one that adds `monitor` to the logs and before `ExactResume`.
    Proxies are chosen when an epoch begins, after the last checkpoint.

    Adds to the logs of each epoch: `ccp_problem`, the number of the problem
    from 1, 0 during `warmup_epochs`; `ccp_steps`, its steps so far;
    `ccp_covering_radius`, mean over classes of the largest distance of a pool
    sample to the nearest of :math:`\rho^*` and the proxies added to it when
    the problem began; `ccp_anchor_distance`, :math:`|\theta - \theta^*|`, 0
    in the first problem. Warns if the training is too short for a second
    problem (`patience + 2` evaluations), or if problem 1 has the best score.

    In the reference code the anchor is the best-validated snapshot, to which
    the network is not reset, and the first choice starts from centers of zeros
    (here from none); distances here are between embeddings as the loss
    normalizes them.

    Args:
        pool: source of samples, read again for every problem: a data set of
            (images, labels) batches (`tf.data.Dataset`, `PyDataset`, list),
            shuffled if possible; a tuple of two arrays, read in random order;
            a function `(classes, problem)` from an integer array of classes
            to one of these; or `"recent"`: the newest embeddings of the
            training, from the learner's `recent` or `memory`, which cost
            nothing. A class that is not among them keeps its proxies.
        pool_size: samples per class to choose from, at least 1. Default 12,
            the paper's. Below `proxies_per_class` it counts per proxy: 1 is
            random sampling.
        patience: evaluations without improvement after which a problem has
            converged, at least 1. Default 3, the reference code's. `None`
            never ends the first problem: a single set of sampled proxies.
        warmup_epochs: epochs at the start in which pairs within the batch
            replace proxies, at least 0; needs a pair loss. Default 0, for a
            pretrained encoder: embeddings of a random one are no useful
            proxies.
        monitor: name of the score in the logs. Default `"val_map_at_r"`.
        mode: `"max"` or `"min"`, which scores are better. Default `"max"`.
        min_delta: smallest change that counts as improvement, at least 0.
            Default 0.
        restore_anchors: whether each problem ends at its best-validated
            snapshot, which becomes the anchor and to which the encoder is
            reset. Default `False`: neither the paper nor its code resets. A
            learning-rate schedule counts the undone steps too: keep the rate
            constant.
        max_problems: number of converged problems after which training ends,
            at least 1. Default `None`: never.
        stop_after: number of problems in a row without a new best score after
            which training ends, at least 1. Default `None`: never.
        every_epochs: epochs from one evaluation to the next, at least 1, as
            in `RetrievalEvaluation`. Default 1.
        batch_size: samples embedded at once, at least 1. Default 64.
        seed: integer: the order of arrays and the generator of `augment`
            depend on it and the problem. Default 0.
        first_pool: `pool` of the first problem, for `pool="recent"`, which is
            empty before the first step. Default `None`: `pool`; an empty
            recent pool leaves the proxies unchanged.
        augment: function `(images, generator)` from an array of the pool's
            images to augmented images, with a `np.random.Generator`. Default
            `None`: images as the pool holds them.

    Attributes:
        num_problems: problems begun so far; all but the last converged.

    Raises:
        TypeError: a pool that cannot be read again, an `augment` that is no
            function, a model that is no `MetricLearner`.
        ValueError: an argument outside its range; a learner without proxies
            or anchors; a warm-up with a proxy loss; a class without a sample;
            a monitor that is missing from the logs.

    Example:
    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    images = np.random.rand(32, 8).astype("float32")
    labels = np.repeat(np.arange(4), 8)
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    learner = gsp.models.MetricLearner(
        encoder,
        proxies=gsp.layers.ClassProxies(4, proxies_per_class=2),
        anchor_weight=2e-4,
    )
    learner.compile("adam", loss=gsp.losses.ContrastiveLoss())
    learner.fit(images, labels, epochs=5, verbose=0, callbacks=[
        gsp.callbacks.RetrievalEvaluation((images, labels)),
        gsp.callbacks.ChanceConstrainedProgramming(
            (images, labels), pool_size=4
        ),
    ])
    ```

    Reference:
        "Deep metric learning with alternating sets of alternating proxies",
        Algorithm 1; thesis, chapter 3.
    """

    # Counting steps must not make Keras wait for every batch.
    async_safe = True

    def __init__(
        self,
        pool: Any,
        *,
        pool_size: int = 12,
        patience: int | None = 3,
        warmup_epochs: int = 0,
        monitor: str = "val_map_at_r",
        mode: str = "max",
        min_delta: float = 0.0,
        restore_anchors: bool = False,
        max_problems: int | None = None,
        stop_after: int | None = None,
        every_epochs: int = 1,
        batch_size: int = 64,
        seed: int = 0,
        first_pool: Any = None,
        augment: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
    ) -> None:
        super().__init__()
        check_count(pool_size=pool_size, batch_size=batch_size)
        check_count(every_epochs=every_epochs)
        check_count(
            is_optional=True,
            patience=patience,
            max_problems=max_problems,
            stop_after=stop_after,
        )
        check_choice("max", "min", mode=mode)
        check_not_negative(min_delta=min_delta, warmup_epochs=warmup_epochs)
        if augment is not None and not callable(augment):
            raise TypeError(
                "`augment` must be a function (images, generator) that "
                f"returns images. Received: augment={augment!r}."
            )
        self.pool = check_pool(pool)
        self.first_pool = None if first_pool is None else check_pool(first_pool)
        self.pool_size = pool_size
        self.patience = patience
        self.warmup_epochs = warmup_epochs
        self.monitor = monitor
        self.mode = mode
        self.min_delta = min_delta
        self.restore_anchors = restore_anchors
        self.max_problems = max_problems
        self.stop_after = stop_after
        self.every_epochs = every_epochs
        self.batch_size = batch_size
        self.seed = seed
        self.augment = augment
        self._last_batch = -1
        self._missing: list[str] | None = None

    @property
    def num_problems(self) -> int:
        """Problems begun so far; 0 before the first and in the warm-up."""
        if self._model is None or not scalar(self.model.progress.is_started):
            return 0
        return scalar(self.model.anchored.problem)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks the learner, and warns if the training is too short."""
        _check_learner(self.model, self.warmup_epochs, self.pool)
        self._missing = None
        self._warn_if_too_short()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Chooses the first proxies, or the next ones after convergence."""
        self._raise_if_missing()
        self._last_batch = -1
        progress = self.model.progress
        if not scalar(progress.is_started):
            if epoch < self.warmup_epochs:
                progress.is_warming_up.assign(1)
            else:
                nothing = as_numpy(self.model.proxies.proxies)[:, :0]
                chosen = self._choose_proxies(nothing, problem=1)
                replace_proxies(self.model, *chosen)
        elif self._has_converged():
            self._start_next_problem()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts a step."""
        self._last_batch = batch

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Records the score, and stops after the last problem."""
        learner, logs = self.model, {} if logs is None else logs
        anchored, progress = learner.anchored, learner.progress
        is_warming_up = scalar(progress.is_warming_up)
        if not is_warming_up:
            progress.steps.assign_add(self._last_batch + 1)
            if (epoch + 1) % self.every_epochs == 0:
                self._evaluate(logs)
        problem, distance = scalar(anchored.problem), 0.0
        if problem > 1:
            distance = anchored.distance(learner.encoder.trainable_variables)
        logs["ccp_problem"] = 0 if is_warming_up else problem
        logs["ccp_steps"] = scalar(progress.steps)
        logs["ccp_covering_radius"] = scalar(progress.covering_radius)
        logs["ccp_anchor_distance"] = distance

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends the warm-up; warns if problem 1 has the best score."""
        self.model.progress.is_warming_up.assign(0)
        self._raise_if_missing()
        is_single = self.patience is None or self.max_problems == 1
        if not is_single and self._best_is_of_first_problem():
            warnings.warn(
                "Alternation did not improve the best weights: problem 1 of "
                f"{self.num_problems} has the best `{self.monitor}`. Such a "
                "run shows a single set of sampled proxies; lower the "
                "learning rate, evaluate more often, or train longer.",
                stacklevel=2,
            )

    def _best_is_of_first_problem(self):
        progress = self.model.progress
        if self.num_problems < 2:
            return self.num_problems == 1
        ended = self.num_problems - (0 if self._has_converged() else 1)
        # Every problem after the first one was barren.
        return scalar(progress.barren_problems) == ended - 1 and not scalar(
            progress.best_score
        ) > scalar(progress.best_of_all)

    def _evaluate(self, logs):
        if self.monitor not in logs:
            self._missing = sorted(logs)
            return
        learner, progress = self.model, self.model.progress
        proxies = learner.proxies.proxies
        score = logs[self.monitor] * (1.0 if self.mode == "max" else -1.0)
        progress.record(
            score, learner.encoder, proxies, min_delta=self.min_delta
        )
        if not self._has_converged():
            return
        progress.end_problem()
        barren = scalar(progress.barren_problems)
        if self.num_problems >= (self.max_problems or np.inf) or barren >= (
            self.stop_after or np.inf
        ):
            learner.stop_training = True
            if self.restore_anchors:
                progress.restore_best(learner.encoder)
                proxies.assign(ops.copy(progress.best_proxies))

    def _has_converged(self):
        waited = scalar(self.model.progress.waited)
        return self.patience is not None and waited >= self.patience

    def _start_next_problem(self):
        """Moves the anchors; changes nothing when the pool cannot be read."""
        learner, progress = self.model, self.model.progress
        encoder, existing = learner.encoder, learner.proxies.proxies
        moving = moving_variables(encoder)
        before = [ops.convert_to_numpy(variable) for variable in moving]
        if self.restore_anchors:
            progress.restore_best(encoder)
            existing = progress.best_proxies
        problem = scalar(learner.anchored.problem) + 1
        try:
            chosen = self._choose_proxies(as_numpy(existing), problem)
        except Exception:
            for variable, value in zip(moving, before, strict=True):
                variable.assign(value)
            raise
        learner.anchored.start_problem(
            [ops.copy(variable) for variable in encoder.trainable_variables]
        )
        replace_proxies(learner, *chosen)

    def _choose_proxies(self, existing, problem):
        """Returns new proxies and the pool's mean covering radius."""
        learner = self.model
        proxies = as_numpy(learner.proxies.proxies).copy()
        pool, is_there = self._embedded_pool(problem)
        # Recent embeddings may lack a class: it keeps the proxies it has.
        seen = is_there.any(axis=1)
        if not seen.any():
            return proxies, 0.0
        normalization = getattr(learner.loss, "normalization", "l2")
        found = pool[seen], is_there[seen], existing[seen]
        # Different processors may break a tie differently.
        proxies[seen], radius = from_first_process(
            lambda: next_proxies(*found, proxies.shape[1], normalization)
        )
        return proxies, radius

    def _embedded_pool(self, problem):
        num_classes, per_class, _ = self.model.proxies.proxies.shape
        is_wide = self.pool_size >= per_class
        pool_size = self.pool_size * (1 if is_wide else per_class)
        is_first = problem == 1 and self.first_pool is not None
        pool = self.first_pool if is_first else self.pool
        if pool is RECENT:
            memory = _recent_memory(self.model)
            return recent_class_pool(memory, num_classes, pool_size)
        predict = predictor(self.model.encoder)
        generator = np.random.default_rng([self.seed, problem, 1])
        draw = partial(
            pool_batches,
            pool,
            problem=problem,
            seed=self.seed,
            batch_size=self.batch_size,
        )

        def embed(images):
            if self.augment is not None:
                images = np.asarray(self.augment(images, generator))
            # Under tf.distribute every replica answers the whole batch.
            return np.asarray(embedding_of(predict(images)))[: len(images)]

        return embed_class_pool(
            draw,
            embed,
            num_classes=num_classes,
            pool_size=pool_size,
            min_size=per_class,
            batch_size=self.batch_size,
        )

    def _warn_if_too_short(self):
        epochs = (self.params or {}).get("epochs")
        if epochs is None or self.patience is None:
            return
        if self.max_problems == 1 or self.num_problems > 1:
            return
        # A problem's first evaluation is the best one so far, `patience` more
        # end it, and the next problem needs one. Evaluations fall on
        # multiples of `every_epochs`, warm-up or not.
        skipped = self.warmup_epochs // self.every_epochs
        needed = (skipped + self.patience + 2) * self.every_epochs
        if epochs < needed:
            warnings.warn(
                "No second problem can be trained and scored: with patience="
                f"{self.patience} it takes {self.patience + 2} evaluations, "
                f"{needed} epochs in all. Received: epochs={epochs}. Evaluate "
                "more often, train longer, or set `patience=None` for a "
                "single set of sampled proxies.",
                stacklevel=2,
            )

    def _raise_if_missing(self):
        """Raises late, so that the callbacks after this one save the epoch."""
        if self._missing is not None:
            available, self._missing = ", ".join(self._missing), None
            raise ValueError(
                "`monitor` must be in the logs at every evaluation; put "
                "`RetrievalEvaluation` before this callback, and give both "
                f"the same `every_epochs`. Received: monitor={self.monitor!r}; "
                f"the logs have: {available}."
            )


def _recent_memory(learner):
    return learner.memory if learner.recent is None else learner.recent


def _check_learner(learner, warmup_epochs, pool):
    if not isinstance(learner, MetricLearner):
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
    if pool is RECENT and _recent_memory(learner) is None:
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
