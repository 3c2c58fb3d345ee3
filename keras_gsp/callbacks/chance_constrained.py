"""Chance constrained programming: alternating proxies, anchored weights."""

import keras
import numpy as np
from keras import ops

from keras_gsp.callbacks.class_pool import (
    check_pool,
    embed_class_pool,
    pool_batches,
)
from keras_gsp.callbacks.next_proxies import next_proxies
from keras_gsp.callbacks.optimizer_slots import clear_slots
from keras_gsp.models.encoder import embedding_of
from keras_gsp.models.problem_progress import moving_variables
from keras_gsp.models.scalar import scalar


class ChanceConstrainedProgramming(keras.callbacks.Callback):
    r"""Replaces proxies by samples whenever training with them has converged.

    Proxies stand for the samples they cover. A single set of them covers a
    class badly, so a sequence of problems is solved: train with the proxies
    until `monitor` has not improved for `patience` evaluations; keep the
    best-validated snapshot of this problem as :math:`\theta^*, \rho^*`; embed
    `pool_size` samples per class; take as next proxies those that
    `keras_gsp.ops.greedy_k_center` adds to :math:`\rho^*`; clear what the
    optimizer remembers of the old ones; train on with the encoder's weights
    pulled towards :math:`\theta^*`. The first proxies are samples as well.

    The learner holds proxies and anchors:
    `MetricLearner(encoder, proxies=ClassProxies(...), anchor_weight=2e-4)`,
    with any pair loss. All state is in its non-trainable weights, so a
    checkpoint (`ExactResume`) may fall into the middle of a problem. Place
    this callback behind the one that adds `monitor` to the logs and before
    `ExactResume`.

    Proxies are chosen when an epoch begins, after the checkpoint of the last
    one, and the errors that only show in training are raised there too:
    what was trained before is not lost.

    Adds to the logs of each epoch: `ccp_problem`, the number of the problem
    from 1; `ccp_steps`, its steps so far; `ccp_covering_radius`, mean over
    classes of the largest distance of a pool sample to the nearest of
    :math:`\rho^*` and the proxies added to it when the problem began;
    `ccp_anchor_distance`, :math:`|\theta - \theta^*|`, 0 in the first
    problem.

    Where we differ from the reference code: there the network is never reset
    to :math:`\theta^*`, which is `restore_anchors=False`; existing centres
    of the first choice are zeros there, none here; and distances are taken
    between embeddings as the loss normalises them.

    Args:
        pool: where samples come from, read anew for every problem: a data
            set of (images, labels) batches (`tf.data.Dataset`, `PyDataset`,
            list of batches), ideally shuffled and augmented; a tuple of two
            arrays, drawn in random order; or a function `(classes, problem)`
            that returns one of these for an integer array of classes, which
            alone is exactly resumable when the samples are random.
        pool_size: samples per class to choose from, at least 1. Default 12,
            the paper's. Below `proxies_per_class`, so many for each proxy: 1
            is random sampling.
        patience: evaluations without improvement after which a problem has
            converged, at least 1. Default 3, the reference code's. `None`
            never ends the first problem: single proxies that start from
            samples.
        monitor: name of the score in the logs. Default `"val_map_at_r"`.
        mode: `"max"` or `"min"`, which scores are better. Default `"max"`.
        min_delta: smallest change that counts as improvement, at least 0.
            Default 0.
        restore_anchors: whether the encoder goes back to :math:`\theta^*`
            when the next problem starts and when this callback ends the
            training (Algorithm 1), or on from where it is. Default `True`.
        max_problems: training ends when so many problems have converged, at
            least 1. Default `None`: never.
        stop_after: training ends when so many problems in a row did not beat
            the best score of those before, at least 1. Default `None`:
            never.
        every_epochs: epochs from one evaluation to the next, at least 1, as
            in `RetrievalEvaluation`. Default 1.
        batch_size: samples embedded at once, at least 1. Default 64.
        seed: integer, with the number of the problem the order of arrays.
            Default 0.

    Raises:
        TypeError: a pool that cannot be read again, a model that is no
            `MetricLearner`.
        ValueError: an argument outside its range; a learner without proxies
            or without anchors; a class without a sample in the pool; a
            monitor that is missing from the logs.

    Example:
    ```python
    images = np.random.rand(32, 8).astype("float32")
    labels = np.repeat(np.arange(4), 8)
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    learner = gsp.models.MetricLearner(
        encoder,
        proxies=gsp.layers.ClassProxies(4, proxies_per_class=2),
        anchor_weight=2e-4,
    )
    learner.compile("adam", loss=gsp.losses.ContrastiveLoss())
    learner.fit(images, labels, epochs=2, verbose=0, callbacks=[
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
        pool,
        *,
        pool_size=12,
        patience=3,
        monitor="val_map_at_r",
        mode="max",
        min_delta=0.0,
        restore_anchors=True,
        max_problems=None,
        stop_after=None,
        every_epochs=1,
        batch_size=64,
        seed=0,
    ):
        super().__init__()
        _check_counts(
            pool_size=pool_size,
            every_epochs=every_epochs,
            batch_size=batch_size,
        )
        optional = {
            "patience": patience,
            "max_problems": max_problems,
            "stop_after": stop_after,
        }
        _check_counts(**{k: v for k, v in optional.items() if v is not None})
        if mode not in ("max", "min"):
            raise ValueError(
                f'`mode` must be "max" or "min". Received: mode={mode!r}.'
            )
        if not min_delta >= 0.0:
            raise ValueError(
                "`min_delta` must be at least 0. "
                f"Received: min_delta={min_delta}."
            )
        self.pool = check_pool(pool)
        self.pool_size = pool_size
        self.patience = patience
        self.monitor = monitor
        self.mode = mode
        self.min_delta = min_delta
        self.restore_anchors = restore_anchors
        self.max_problems = max_problems
        self.stop_after = stop_after
        self.every_epochs = every_epochs
        self.batch_size = batch_size
        self.seed = seed
        self._batches_ended = []
        self._missing = None

    def on_train_begin(self, logs=None):
        """Checks that the learner has proxies and anchors."""
        if not hasattr(self.model, "anchored"):
            raise TypeError(
                "ChanceConstrainedProgramming trains a "
                f"`MetricLearner`. Received: a {type(self.model).__name__}."
            )
        if self.model.proxies is None:
            raise ValueError(
                "The learner must have proxies to alternate: "
                "`MetricLearner(..., proxies=ClassProxies(num_classes))`. "
                "Received: proxies=None."
            )
        if self.model.progress is None:
            raise ValueError(
                "The learner must have anchors: `MetricLearner(..., "
                "anchor_weight=2e-4)`. Received: anchor_weight="
                f"{self.model.anchor_weight}."
            )
        self._missing = None

    def on_epoch_begin(self, epoch, logs=None):
        """Chooses the first proxies, or the next ones after convergence."""
        self._raise_if_missing()
        self._batches_ended = []
        if not scalar(self.model.progress.is_started):
            self._start_first_problem()
        elif self._has_converged():
            self._start_next_problem()

    def on_train_batch_end(self, batch, logs=None):
        """Counts a step."""
        self._batches_ended.append(batch)

    def on_epoch_end(self, epoch, logs=None):
        """Notes the score, and stops when no further problem is wanted."""
        progress = self.model.progress
        progress.steps.assign_add(1 + max(self._batches_ended, default=-1))
        if (epoch + 1) % self.every_epochs == 0:
            self._evaluate(logs or {})
        if logs is not None:
            logs.update(self._own_logs())

    def on_train_end(self, logs=None):
        """Says that the monitor was missing, if it was."""
        self._raise_if_missing()

    def _evaluate(self, logs):
        if self.monitor not in logs:
            self._missing = sorted(logs)
            return
        learner, progress = self.model, self.model.progress
        score = logs[self.monitor] * (1.0 if self.mode == "max" else -1.0)
        progress.record(
            score,
            learner.encoder,
            learner.proxies.proxies,
            min_delta=self.min_delta,
        )
        if self._has_converged():
            progress.end_problem()
            if self._is_last():
                self._stop()

    def _has_converged(self):
        waited = scalar(self.model.progress.waited)
        return self.patience is not None and waited >= self.patience

    def _is_last(self):
        problems = scalar(self.model.anchored.problem)
        barren = scalar(self.model.progress.barren_problems)
        return problems >= (self.max_problems or np.inf) or barren >= (
            self.stop_after or np.inf
        )

    def _stop(self):
        learner, progress = self.model, self.model.progress
        learner.stop_training = True
        if self.restore_anchors:
            progress.restore_best(learner.encoder)
            learner.proxies.proxies.assign(ops.copy(progress.best_proxies))

    def _start_first_problem(self):
        proxies = self.model.proxies.proxies
        nothing = np.zeros((proxies.shape[0], 0, proxies.shape[2]), "float32")
        self._replace_proxies(*self._choose_proxies(nothing, problem=1))

    def _start_next_problem(self):
        learner, progress = self.model, self.model.progress
        moving = moving_variables(learner.encoder)
        before = [ops.convert_to_numpy(variable) for variable in moving]
        if self.restore_anchors:
            progress.restore_best(learner.encoder)
        problem = scalar(learner.anchored.problem) + 1
        try:
            existing = ops.convert_to_numpy(progress.best_proxies)
            chosen = self._choose_proxies(existing, problem)
        except Exception:
            # Without a pool there is no switch: leave what was trained.
            for variable, value in zip(moving, before, strict=True):
                variable.assign(value)
            raise
        trainable = len(learner.encoder.trainable_variables)
        learner.anchored.start_problem(
            [ops.copy(best) for best in progress.best_encoder[:trainable]]
        )
        self._replace_proxies(*chosen)

    def _choose_proxies(self, existing, problem):
        """Returns the next proxies and their mean covering radius."""
        num_classes, per_class, _ = self.model.proxies.proxies.shape
        is_wide = self.pool_size >= per_class

        def draw(classes):
            return pool_batches(
                self.pool,
                classes,
                problem=problem,
                seed=self.seed,
                batch_size=self.batch_size,
            )

        pool, is_there = embed_class_pool(
            draw,
            self._embed,
            num_classes=num_classes,
            pool_size=self.pool_size * (1 if is_wide else per_class),
            min_size=per_class,
            batch_size=self.batch_size,
        )
        normalization = getattr(self.model.loss, "normalization", "l2")
        return next_proxies(pool, is_there, existing, per_class, normalization)

    def _embed(self, images):
        outputs = self.model.encoder.predict_on_batch(images)
        # Under tf.distribute every replica answers the whole batch.
        return np.asarray(embedding_of(outputs))[: len(images)]

    def _replace_proxies(self, proxies, radius):
        learner = self.model
        learner.proxies.proxies.assign(proxies)
        clear_slots(learner.optimizer, learner.proxies.proxies)
        learner.progress.start_problem(radius)

    def _own_logs(self):
        anchored, progress = self.model.anchored, self.model.progress
        is_anchored = scalar(anchored.problem) > 1
        variables = self.model.encoder.trainable_variables
        return {
            "ccp_problem": scalar(anchored.problem),
            "ccp_steps": scalar(progress.steps),
            "ccp_covering_radius": scalar(progress.covering_radius),
            "ccp_anchor_distance": anchored.distance(variables)
            if is_anchored
            else 0.0,
        }

    def _raise_if_missing(self):
        """Late, so that the callbacks behind could save the epoch."""
        if self._missing is not None:
            available, self._missing = ", ".join(self._missing), None
            raise ValueError(
                "`monitor` must be in the logs at every evaluation; put "
                "`RetrievalEvaluation` before this callback, and give both "
                f"the same `every_epochs`. Received: monitor={self.monitor!r}; "
                f"the logs have: {available}."
            )


def _check_counts(**counts):
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"`{name}` must be an integer of at least 1. "
                f"Received: {name}={count!r}."
            )
