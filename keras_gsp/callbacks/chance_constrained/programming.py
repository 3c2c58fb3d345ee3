"""Chance constrained programming: alternating proxies, anchored weights."""

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_count, check_not_negative
from keras_gsp._encoding import embedding_of
from keras_gsp._processes import as_numpy, from_first_process, predictor
from keras_gsp.callbacks.chance_constrained.class_pool import (
    check_pool,
    embed_class_pool,
    pool_batches,
)
from keras_gsp.callbacks.chance_constrained.new_proxies import next_proxies
from keras_gsp.models.metric_learner import MetricLearner
from keras_gsp.models.problems import scalar

# Half the radius of the ball, for a loss without a positive margin.
FAR = 0.5


class ChanceConstrainedProgramming(keras.callbacks.Callback):
    r"""Replaces proxies by samples whenever training with them has converged.

    Trains a sequence of problems (Algorithm 1). Each problem trains with its
    proxies until `monitor` has not improved for `patience` evaluations, or
    for `refresh_epochs`. Then its weights and proxies become the anchor,
    :math:`\theta^* \leftarrow \theta, \rho^* \leftarrow \rho`; `pool_size`
    samples per class are embedded; the next proxies are those that
    `gsp.ops.greedy_k_center` adds to :math:`\rho^*`; and training continues
    from :math:`\theta` with the encoder's weights pulled towards
    :math:`\theta^*`. The first proxies are samples as well. In the first
    problem nothing pulls, as in the reference code; Algorithm 1 prints a pull
    to the start. The optimizer keeps its state, of the proxies too: a second
    moment that starts again at 0 beside an old step counter makes Adam's next
    steps several times too long.

    With `ClassProxies(..., trainable=False)` proxies stay the samples that they
    were chosen as. All state is in the learner's weights, so `ExactResume` also
    resumes in the middle of a problem. Place this callback after the one that
    adds `monitor` to the logs and before `ExactResume`.

    Adds to the logs of each epoch: `ccp_problem`, from 1, 0 during
    `warmup_epochs`; `ccp_steps`, its steps so far; of the pool that its proxies
    come from, `ccp_covering_radius`, the mean over classes of the largest
    distance of a sample to the nearest of these proxies, and `ccp_far_share`,
    the share of samples that are farther than :math:`\beta` from every proxy
    of their class (the event whose probability the chance constraint bounds;
    :math:`\beta` is the loss's positive margin, 0.5 where it has none);
    `ccp_anchor_distance`, :math:`|\theta - \theta^*|`, 0 in the first problem.
    Warns if the training is too short for a second problem (`patience + 2`
    evaluations), or if problem 1 has the best score.

    In the reference code the anchor is the best-validated snapshot, to which
    the network is not reset, and the first choice starts from centers of zeros
    (here from none); distances here are between embeddings as the loss
    normalizes them.

    Args:
        pool: source of samples, read again for every problem: a data set of
            (images, labels) batches (`tf.data.Dataset`, `PyDataset`, list),
            shuffled if possible; a tuple of two arrays, read in random order;
            or a function `(classes, problem)` from an integer array of
            classes to one of these. Every class must have a sample.
        pool_size: samples per class to choose from, at least 1. Below
            `proxies_per_class` it counts per proxy: 1 is random sampling.
        patience: evaluations without improvement after which a problem has
            converged, at least 1. `None` never ends the first problem: a
            single set of sampled proxies.
        refresh_epochs: epochs after which a problem ends, at least 1, in
            place of `patience` and `monitor`: needs no validation set.
        warmup_epochs: epochs at the start in which pairs within the batch
            replace proxies, at least 0; needs a pair loss. For encoders
            without pretraining, whose embeddings are no useful proxies.
        monitor: name of the score in the logs; larger is better. Not needed
            with `patience=None`.
        validation_freq: epochs from one evaluation to the next, at least 1, as
            in `RetrievalEvaluation`.
        seed: integer seed of the order of arrays and of `augment`'s generator.
        augment: function `(images, generator)` from an array of the pool's
            images to augmented images, with a `np.random.Generator`.

    Attributes:
        num_problems: problems begun so far; all but the last converged.

    Raises:
        TypeError: a pool that cannot be read again, a model that is no
            `MetricLearner`.
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
    _counting = threading.Lock()

    def __init__(
        self,
        pool: Any,
        *,
        pool_size: int = 12,
        patience: int | None = 3,
        refresh_epochs: int | None = None,
        warmup_epochs: int = 0,
        monitor: str = "val_map_at_r",
        validation_freq: int = 1,
        seed: int = 0,
        augment: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
    ) -> None:
        super().__init__()
        check_count(pool_size=pool_size, validation_freq=validation_freq)
        check_count(
            is_optional=True, patience=patience, refresh_epochs=refresh_epochs
        )
        check_not_negative(warmup_epochs=warmup_epochs)
        if augment is not None and not callable(augment):
            raise TypeError(
                "`augment` must be a function (images, generator). "
                f"Received: augment={augment!r}."
            )
        self.pool = check_pool(pool)
        self.pool_size = pool_size
        self.patience = patience
        self.refresh_epochs = refresh_epochs
        self.warmup_epochs = warmup_epochs
        self.monitor = monitor
        self.validation_freq = validation_freq
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
        _check_learner(self.model, self.warmup_epochs)
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
                self._start_problem(1)
        else:
            most = self.refresh_epochs or self.patience
            if most is not None and scalar(progress.waited) >= most:
                self._start_problem(scalar(self.model.anchored.problem) + 1)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts a step; Keras may report the ends out of order."""
        with self._counting:
            self._last_batch = max(self._last_batch, batch)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Records the score, and adds the state of the problem to the logs."""
        learner, logs = self.model, {} if logs is None else logs
        anchored, progress = learner.anchored, learner.progress
        is_warming_up = scalar(progress.is_warming_up)
        problem, distance = scalar(anchored.problem), 0.0
        if not is_warming_up:
            progress.steps.assign_add(self._last_batch + 1)
            if self.refresh_epochs is not None:
                progress.waited.assign_add(1)
            elif (epoch + 1) % self.validation_freq == 0:
                if self.monitor in logs:
                    progress.record(logs[self.monitor], problem)
                elif self.patience is not None:
                    self._missing = sorted(logs)
        if problem > 1:
            distance = anchored.distance(learner.encoder.trainable_variables)
        logs["ccp_problem"] = 0 if is_warming_up else problem
        logs["ccp_steps"] = scalar(progress.steps)
        logs["ccp_covering_radius"] = scalar(progress.covering_radius)
        logs["ccp_far_share"] = scalar(progress.far_share)
        logs["ccp_anchor_distance"] = distance

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends the warm-up; warns if problem 1 has the best score."""
        progress = self.model.progress
        progress.is_warming_up.assign(0)
        self._raise_if_missing()
        if self._alternates and scalar(progress.best_problem) == 1:
            warnings.warn(
                "Alternation did not improve the best weights: problem 1 of "
                f"{self.num_problems} has the best `{self.monitor}`. Lower the "
                "learning rate, evaluate more often, or train longer.",
                stacklevel=2,
            )

    @property
    def _alternates(self):
        """Whether problems end by their scores."""
        return self.patience is not None and self.refresh_epochs is None

    def _start_problem(self, problem):
        """Chooses proxies and moves the anchors to the weights.

        Changes nothing when the pool cannot be read.
        """
        learner = self.model
        existing = as_numpy(learner.proxies.proxies)
        if problem == 1:
            existing = existing[:, :0]
        pool, is_there = self._embedded_pool(problem)
        normalization = getattr(learner.loss, "normalization", "l2")
        far = getattr(learner.loss, "positive_margin", None) or FAR
        per_class = learner.proxies.proxies_per_class
        # Different processors may break a tie differently.
        chosen = from_first_process(
            lambda: next_proxies(
                pool, is_there, existing, per_class, normalization, far
            )
        )
        if problem > 1:
            weights = learner.encoder.trainable_variables
            learner.anchored.start_problem([ops.copy(w) for w in weights])
        learner.proxies.proxies.assign(chosen.proxies)
        learner.progress.start_problem(chosen.covering_radius, chosen.far_share)

    def _embedded_pool(self, problem):
        num_classes, per_class, _ = self.model.proxies.proxies.shape
        pool_size = self.pool_size
        if pool_size < per_class:  # Then it counts per proxy.
            pool_size *= per_class
        predict = predictor(self.model.encoder)
        generator = np.random.default_rng([self.seed, problem, 1])
        options = {"problem": problem, "seed": self.seed}
        draw = partial(pool_batches, self.pool, **options)

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
        )

    def _warn_if_too_short(self):
        epochs = (self.params or {}).get("epochs")
        if self.patience is None or not self._alternates:
            return
        if epochs is None or self.num_problems > 1:
            return
        # A problem's first evaluation is the best one so far, `patience` more
        # end it, and the next problem needs one. Evaluations fall on
        # multiples of `validation_freq`, warm-up or not.
        skipped = self.warmup_epochs // self.validation_freq
        needed = (skipped + self.patience + 2) * self.validation_freq
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
        # Late, so that the callbacks after this one save the epoch.
        if self._missing is not None:
            available, self._missing = ", ".join(self._missing), None
            raise ValueError(
                "`monitor` must be in the logs at every evaluation: of a "
                "`RetrievalEvaluation` before this callback, with the same "
                f"`validation_freq`. Received: monitor={self.monitor!r}; the "
                f"logs have {available}."
            )


def _check_learner(learner, warmup_epochs):
    if not isinstance(learner, MetricLearner):
        raise TypeError(
            "ChanceConstrainedProgramming trains a `MetricLearner`. "
            f"Received: a {type(learner).__name__}."
        )
    if learner.proxies is None:
        raise ValueError(
            "The learner must have proxies to alternate, `ClassProxies`. "
            "Received: proxies=None."
        )
    if learner.progress is None:
        raise ValueError(
            "The learner must have anchors, for example anchor_weight=2e-4. "
            f"Received: anchor_weight={learner.anchor_weight}."
        )
    if warmup_epochs > 0 and "in_batch_weight" not in learner.loss.takes:
        raise ValueError(
            "`warmup_epochs` must be 0 with a proxy loss. Received: "
            f"warmup_epochs={warmup_epochs}, loss={learner.loss!r}."
        )
