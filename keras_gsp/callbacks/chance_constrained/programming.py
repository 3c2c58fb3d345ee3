"""Chance constrained programming: alternating proxies, anchored weights."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_gsp.callbacks.chance_constrained.class_pool import check_pool
from keras_gsp.callbacks.chance_constrained.proxy_alternation import (
    ProxyChoice,
    check_learner,
    problem_logs,
    restore_best,
    start_first_problem,
    start_next_problem,
)
from keras_gsp.models.problems import scalar
from keras_gsp.ops.arguments import check_count, check_not_negative
from keras_gsp.ops.tensor import Tensor


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
    with any pair loss, then taken between batch and proxies, or any proxy
    loss. All state is in its non-trainable weights, so a checkpoint
    (`ExactResume`) may fall into the middle of a problem. Place this callback
    behind the one that adds `monitor` to the logs and before `ExactResume`.

    Proxies are chosen when an epoch begins, after the checkpoint of the last
    one, and the errors that only show in training are raised there too:
    what was trained before is not lost.

    Adds to the logs of each epoch: `ccp_problem`, the number of the problem
    from 1, 0 during `warmup_epochs`; `ccp_steps`, its steps so far;
    `ccp_covering_radius`, mean over classes of the largest distance of a pool
    sample to the nearest of :math:`\rho^*` and the proxies added to it when
    the problem began; `ccp_anchor_distance`, :math:`|\theta - \theta^*|`, 0
    in the first problem. A training too short for a second problem, which
    needs `patience + 2` evaluations, is warned of before its first step.

    Where we differ from the reference code: there the network is never reset
    to :math:`\theta^*`, which is `restore_anchors=False`; existing centers
    of the first choice are zeros there, none here; and distances are taken
    between embeddings as the loss normalizes them.

    Args:
        pool: where samples come from, read anew for every problem: a data
            set of (images, labels) batches (`tf.data.Dataset`, `PyDataset`,
            list of batches), ideally shuffled and augmented; a tuple of two
            arrays, drawn in random order; or a function `(classes, problem)`
            that returns one of these for an integer array of classes, which
            alone is exactly resumable when the samples are random; or
            `"recent"`: the newest embeddings that training itself has
            produced, of the learner's `recent` or `memory`, for which
            nothing is embedded. They are some steps old; a class that is not
            among them keeps its proxies.
        pool_size: samples per class to choose from, at least 1. Default 12,
            the paper's. Below `proxies_per_class`, so many for each proxy: 1
            is random sampling.
        patience: evaluations without improvement after which a problem has
            converged, at least 1. Default 3, the reference code's. `None`
            never ends the first problem: single proxies that start from
            samples.
        warmup_epochs: epochs at the start in which pairs within the batch
            stand in for proxies, at least 0. Default 0, for an encoder that
            has learned something already: the samples of a random one are no
            proxies, and nothing is learned from them. Needs a pair loss.
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
        first_pool: where the samples of the first problem come from, as
            `pool`, for `pool="recent"`: before the first step no embedding
            is recent. Default `None`: `pool`; without `warmup_epochs` the
            first problem then starts from the proxies as they are.

    Attributes:
        num_problems: problems begun so far. Each but the last has
            converged; 1 at the end of a training means that nothing ever
            alternated.

    Raises:
        TypeError: a pool that cannot be read again, a model that is no
            `MetricLearner`.
        ValueError: an argument outside its range; a learner without proxies
            or without anchors; a warm-up with a proxy loss; a class without
            a sample in the pool; a monitor that is missing from the logs.

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

    # Counting steps must not make Keras wait for every batch.
    async_safe = True

    def __init__(
        self,
        pool: Tensor,
        *,
        pool_size: int = 12,
        patience: int | None = 3,
        warmup_epochs: int = 0,
        monitor: str = "val_map_at_r",
        mode: str = "max",
        min_delta: float = 0.0,
        restore_anchors: bool = True,
        max_problems: Any = None,
        stop_after: Any = None,
        every_epochs: int = 1,
        batch_size: int = 64,
        seed: int = 0,
        first_pool: Any = None,
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
        if mode not in ("max", "min"):
            raise ValueError(
                f'`mode` must be "max" or "min". Received: mode={mode!r}.'
            )
        check_not_negative(min_delta=min_delta, warmup_epochs=warmup_epochs)
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
        self._choice = ProxyChoice(
            self.pool, self.first_pool, pool_size, batch_size, seed
        )
        self._batches_ended: list[int] = []
        self._missing: list[str] | None = None

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Checks the learner, and warns of a training that is too short."""
        check_learner(self.model, self.warmup_epochs, self.pool)
        self._missing = None
        self._warn_if_too_short()

    @property
    def num_problems(self) -> int:
        """Problems begun so far; 0 before the first and in the warm-up."""
        if self._model is None or not scalar(self.model.progress.is_started):
            return 0
        return scalar(self.model.anchored.problem)

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Chooses the first proxies, or the next ones after convergence."""
        self._raise_if_missing()
        self._batches_ended = []
        progress = self.model.progress
        if not scalar(progress.is_started) and epoch < self.warmup_epochs:
            progress.is_warming_up.assign(1)
        elif not scalar(progress.is_started):
            start_first_problem(self.model, self._choice)
        elif self._has_converged():
            start_next_problem(
                self.model, self._choice, restore_anchors=self.restore_anchors
            )

    def on_train_batch_end(
        self, batch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Counts a step."""
        self._batches_ended.append(batch)

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        """Notes the score, and stops when no further problem is wanted."""
        progress = self.model.progress
        if not scalar(progress.is_warming_up):
            progress.steps.assign_add(1 + max(self._batches_ended, default=-1))
            if (epoch + 1) % self.every_epochs == 0:
                self._evaluate(logs or {})
        if logs is not None:
            logs.update(problem_logs(self.model))

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Ends the warm-up, and says that the monitor was missing if it was."""
        self.model.progress.is_warming_up.assign(0)
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
                learner.stop_training = True
                if self.restore_anchors:
                    restore_best(learner)

    def _warn_if_too_short(self):
        """A single set of proxies is another method, and no error."""
        epochs = (self.params or {}).get("epochs")
        if epochs is None or self.patience is None or self.max_problems == 1:
            return
        if scalar(self.model.anchored.problem) > 1:
            return
        needed = epochs_until_second_problem(
            self.patience, self.warmup_epochs, self.every_epochs
        )
        if epochs < needed:
            warnings.warn(
                "No second problem can be trained and scored: with patience="
                f"{self.patience} it takes {self.patience + 2} evaluations, "
                f"{needed} epochs in all. Received: epochs={epochs}. Evaluate "
                "more often, train longer, or set `patience=None` for a "
                "single set of sampled proxies.",
                stacklevel=2,
            )

    def _has_converged(self):
        waited = scalar(self.model.progress.waited)
        return self.patience is not None and waited >= self.patience

    def _is_last(self):
        problems = scalar(self.model.anchored.problem)
        barren = scalar(self.model.progress.barren_problems)
        return problems >= (self.max_problems or np.inf) or barren >= (
            self.stop_after or np.inf
        )

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


def epochs_until_second_problem(
    patience: int, warmup_epochs: int = 0, every_epochs: int = 1
) -> int:
    """Returns the fewest epochs of a training with more than one problem.

    A problem's first evaluation is its best one at first; `patience` more
    end it, and the next problem is trained for one evaluation at least.

    Args:
        patience: evaluations without improvement.
        warmup_epochs: epochs before the first problem.
        every_epochs: epochs from one evaluation to the next.
    """
    # Evaluations fall on multiples of `every_epochs`, warm-up or not.
    skipped = warmup_epochs // every_epochs
    return (skipped + patience + 2) * every_epochs
