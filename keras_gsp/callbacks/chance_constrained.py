"""Chance constrained programming: alternating proxies, anchored weights."""

import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_count, check_not_negative
from keras_gsp._embeddings import checked_embeddings
from keras_gsp._encoding import embedding_of
from keras_gsp._labeled_batches import batches_of, check_pair
from keras_gsp._labels import batch_labels, host_array
from keras_gsp._processes import as_numpy, from_first_process, predictor
from keras_gsp.callbacks.step_counter import StepCounter
from keras_gsp.models.metric_learner import MetricLearner
from keras_gsp.models.problems import scalar
from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.normalization import normalize

BATCH_SIZE = 64
# Reading of endless data stops after this many samples that no class needs,
# or 20 a class.
FRUITLESS_SAMPLES = 10_000
# Half the radius of the ball, for a loss without a positive margin.
FAR = 0.5


class ChanceConstrainedProgramming(StepCounter):
    r"""Replaces proxies by samples whenever training with them has converged.

    Trains a sequence of problems (Algorithm 1). Each trains with its proxies
    until `monitor` has not improved for `patience` evaluations. Then weights
    and proxies become the anchor, :math:`\theta^* \leftarrow \theta, \rho^*
    \leftarrow \rho`; `pool_size` samples per class are embedded; the next
    proxies are those that `gsp.ops.greedy_k_center` adds to :math:`\rho^*`;
    and training continues from :math:`\theta`, pulled towards
    :math:`\theta^*`. The first proxies are samples as well. The first problem
    has no pull, as in the reference code (Algorithm 1 prints one), whose anchor
    is the best-validated snapshot and whose first choice starts from zeros.
    The optimizer keeps its state.

    All state is in the learner's weights, so `ExactResume` also resumes in the
    middle of a problem. Place this callback after the one that adds `monitor`
    to the logs and before `ExactResume`. It warns if the training is too short
    for a second problem, or if problem 1 has the best score.

    Adds to the logs of each epoch:

    - `ccp_problem`: from 1; 0 during `warmup_epochs`.
    - `ccp_steps`: steps of the problem so far.
    - `ccp_covering_radius`: mean over the pool's classes of the largest
      distance of a sample to the nearest new proxy, between embeddings as the
      loss normalizes them.
    - `ccp_far_share`: share of the pool that is farther than the loss's
      positive margin (0.5 without one) from all new proxies of its class, the
      event whose probability the chance constraint bounds.
    - `ccp_anchor_distance`: :math:`|\theta - \theta^*|`, 0 in problem 1.

    Args:
        pool: samples of every class: a data set of (images, labels) batches,
            shuffled if possible; a tuple of two arrays, read in random order;
            or a function `(classes, problem)` from all class numbers to one
            of these. A class with fewer samples than proxies repeats one.
        pool_size: samples per class to choose from, at least 1. Below
            `proxies_per_class` it counts per proxy: 1 is random sampling.
        patience: evaluations without improvement after which a problem has
            converged, at least 1. `None` never ends the first problem: a
            single set of sampled proxies.
        warmup_epochs: epochs at the start in which pairs within the batch
            replace proxies, at least 0; needs a pair loss. For encoders
            without pretraining, whose embeddings are no useful proxies.
        monitor: name of the score in the logs; larger is better. Not needed
            with `patience=None`.
        validation_freq: epochs from one evaluation to the next, at least 1, as
            in `RetrievalEvaluation`.
        seed: integer seed of the order of arrays.

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

    def __init__(
        self,
        pool: Any,
        *,
        pool_size: int = 12,
        patience: int | None = 3,
        warmup_epochs: int = 0,
        monitor: str = "val_map_at_r",
        validation_freq: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_count(pool_size=pool_size, validation_freq=validation_freq)
        check_count(is_optional=True, patience=patience)
        check_not_negative(warmup_epochs=warmup_epochs)
        self.pool = _checked_pool(pool)
        self.pool_size = pool_size
        self.patience = patience
        self.warmup_epochs = warmup_epochs
        self.monitor = monitor
        self.validation_freq = validation_freq
        self.seed = seed
        self._missing: list[str] | None = None

    @property
    def num_problems(self) -> int:
        """Problems begun so far; 0 before the first and in the warm-up."""
        if self._model is None or not scalar(self.model.progress.is_started):
            return 0
        return scalar(self.model.anchored.problem)

    def on_train_begin(self, logs: dict | None = None) -> None:
        _check_learner(self.model, self.warmup_epochs)
        self._missing = None
        self._warn_if_too_short()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._raise_if_missing()
        progress = self.model.progress
        if not scalar(progress.is_started):
            if epoch < self.warmup_epochs:
                progress.is_warming_up.assign(1)
            else:
                self._start_problem(1)
        elif self.patience and scalar(progress.waited) >= self.patience:
            self._start_problem(scalar(self.model.anchored.problem) + 1)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        learner, logs = self.model, {} if logs is None else logs
        anchored, progress = learner.anchored, learner.progress
        is_warming_up = scalar(progress.is_warming_up)
        problem, distance = scalar(anchored.problem), 0.0
        if not is_warming_up:
            progress.steps.assign_add(self.num_steps)
            if (epoch + 1) % self.validation_freq == 0:
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
        progress = self.model.progress
        progress.is_warming_up.assign(0)
        self._raise_if_missing()
        if self.patience and scalar(progress.best_problem) == 1:
            warnings.warn(
                "Alternation did not improve the best weights: problem 1 of "
                f"{self.num_problems} has the best `{self.monitor}`. Lower the "
                "learning rate, evaluate more often, or train longer.",
                stacklevel=2,
            )

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
            lambda: _next_proxies(
                pool, is_there, existing, per_class, normalization, far
            )
        )
        if problem > 1:
            weights = learner.encoder.trainable_variables
            learner.anchored.start_problem([ops.copy(w) for w in weights])
        learner.proxies.proxies.assign(chosen.proxies)
        learner.progress.start_problem(chosen.covering_radius, chosen.far_share)

    def _embedded_pool(self, problem):
        """Embeds the first samples of each class of the pool.

        Returns embeddings (num_classes, pool_size, size), float32, and booleans
        (num_classes, pool_size), False for empty places.
        """
        num_classes, per_class, _ = self.model.proxies.proxies.shape
        pool_size = self.pool_size
        if pool_size < per_class:  # Then it counts per proxy.
            pool_size *= per_class
        predict = predictor(self.model.encoder)
        counts = np.zeros(num_classes, "int64")
        places, blocks = [], []
        waiting: list[np.ndarray] = []

        def embed():
            missing = BATCH_SIZE - len(waiting)
            rows = predict(np.stack(waiting + waiting[-1:] * missing))
            # Under tf.distribute every replica answers the whole batch.
            blocks.append(np.asarray(embedding_of(rows))[: len(waiting)])
            waiting.clear()

        batches = _pool_batches(self.pool, num_classes, problem, self.seed)
        for image, label in _wanted(batches, counts, pool_size):
            places.append((label, counts[label] - 1))
            waiting.append(image)
            if len(waiting) == BATCH_SIZE:
                embed()
        if waiting:
            embed()
        embeddings = np.concatenate(blocks).astype("float32")
        embeddings = checked_embeddings(embeddings, "embeddings of the pool")
        shape = num_classes, pool_size, embeddings.shape[1]
        pool = np.zeros(shape, "float32")
        pool[tuple(np.transpose(places))] = embeddings
        return pool, np.arange(pool_size) < counts[:, None]

    def _warn_if_too_short(self):
        epochs = (self.params or {}).get("epochs")
        if not self.patience or epochs is None or self.num_problems > 1:
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
    if learner.progress is None:
        raise ValueError(
            "The learner must have `proxies` to alternate, `ClassProxies`, and "
            "an `anchor_weight`, for example 2e-4. Received: proxies="
            f"{learner.proxies}, anchor_weight={learner.anchor_weight}."
        )
    if warmup_epochs > 0 and "in_batch_weight" not in learner.loss.takes:
        raise ValueError(
            "`warmup_epochs` must be 0 with a proxy loss. Received: "
            f"warmup_epochs={warmup_epochs}, loss={learner.loss!r}."
        )


class _NewProxies(NamedTuple):
    """Proxies (num_classes, per_class, size), and how they cover their pool.

    See the logs of `ChanceConstrainedProgramming`.
    """

    proxies: np.ndarray
    covering_radius: float
    far_share: float


def _next_proxies(
    pool: np.ndarray,
    is_there: np.ndarray,
    existing: np.ndarray,
    per_class: int,
    normalization: str | None,
    far: float,
) -> _NewProxies:
    """Chooses the samples that, with the old proxies, cover a pool best.

    Takes `per_class` samples of each class of the pool (num_classes, pool,
    size), `is_there` of its entries, beside the `existing` proxies
    (num_classes, existing, size).
    """
    # In one array: there is no norm of the first problem's zero centers.
    points = normalize(np.concatenate([pool, existing], axis=1), normalization)
    seen, centers = points[:, : pool.shape[1]], points[:, pool.shape[1] :]
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
    return _NewProxies(proxies, radius, float(is_far[is_there].mean()))


def _checked_pool(pool: Any) -> Any:
    """Returns a pool; `TypeError` unless it can be read several times."""
    is_iterable = hasattr(pool, "__iter__") and not hasattr(pool, "__next__")
    is_known = isinstance(pool, keras.utils.PyDataset) or callable(pool)
    if isinstance(pool, str) or not (is_iterable or is_known):
        raise TypeError(
            "`pool` must be (images, labels) batches that can be read again, "
            "thus no iterator; a tuple of two arrays; or a function (classes, "
            f"problem) that returns one of these. Received: pool={pool!r}."
        )
    return pool


def _pool_batches(pool, num_classes, problem, seed):
    """The (images, labels) batches of a pool."""
    if callable(pool) and not isinstance(pool, keras.utils.PyDataset):
        pool = _checked_pool(pool(np.arange(num_classes), problem))
    order = None
    if isinstance(pool, tuple):
        pool = tuple(map(host_array, pool))
        order = np.random.default_rng([seed, problem]).permutation(len(pool[1]))
    return batches_of(pool, BATCH_SIZE, order)


def _wanted(batches, counts, pool_size):
    """Yields (image, label) of the pool's samples, and counts them."""
    fruitless, limit = 0, max(FRUITLESS_SAMPLES, 20 * len(counts))
    for batch in batches:
        check_pair(batch, "pool")
        images, labels = map(host_array, batch)
        labels = _checked_labels(labels, len(counts))
        fruitless += len(labels)
        for image, label in zip(images, labels, strict=True):
            if counts[label] < pool_size:
                counts[label] += 1
                fruitless = 0
                yield image, label
        if (counts == pool_size).all() or fruitless > limit:
            break
    if not counts.all():
        absent = np.flatnonzero(counts == 0)
        listed = ", ".join(map(str, absent[:10]))
        more = ", ..." if len(absent) > 10 else ""
        raise ValueError(
            "`pool` must hold samples of every class. Received: none of "
            f"{len(absent)} classes: {listed}{more}."
        )


def _checked_labels(labels, num_classes):
    labels = batch_labels(labels)
    is_right = (labels >= 0) & (labels < num_classes)
    if not is_right.all():
        raise ValueError(
            "The labels of `pool` must be in [0, num_classes="
            f"{num_classes}), as the proxies are. Received: "
            f"{labels[~is_right][0]}."
        )
    return labels
