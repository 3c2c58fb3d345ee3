"""Cross-batch metric learning (XML)."""

from dataclasses import replace
from typing import Any

from keras import ops

from keras_gsp._checks import check_integer, check_positive, check_same_size
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import Regularizer, StepParts
from keras_gsp.ops.halves import given_or_drawn_halves
from keras_gsp.ops.labels import (
    first_occurrences,
    flat_labels,
)
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.ridge import cross_half_prediction


class CrossBatchLoss(Regularizer):
    """Applies a loss to embeddings predicted by the other half's prototypes.

    The batch is split into two halves without a common class. Prototypes V are
    fitted to each half in closed form, so that V times the histograms Z
    approximates the embeddings. The prototypes of the other half then predict
    (express) the embedding of each sample, and the pair loss compares these
    within each half:

    `Yhat_1 = V_2 Z_1`, `Yhat_2 = V_1 Z_2`,
    `loss = pair_loss(Yhat_1) + pair_loss(Yhat_2)`.

    `MetricLearner(regularizer=CrossBatchLoss(...))` fits the `"pooled"` vectors
    of its encoder before normalization, or its embeddings without such an
    output. With a proxy loss each half is compared with the learner's proxies.

    Args:
        pair_loss: a `PairLoss`, whose `normalization` is applied to the
            expressed embeddings. Or a `ProxyLoss`, for `express` and
            `MetricLearner` only. Or a `MetricLoss` that has an `inside_loss`.
        ridge: eps of the fit, positive, once for each half (the text before
            (2.10); (2.9) halves it). Default 0.05, the paper's.
        seed: int (the same halves in every call) or `None` (new halves, from
            the global generator of Keras); not used with `first_half`.

    Example:
        ```python
        rng = np.random.default_rng(0)
        loss = gsp.losses.CrossBatchLoss(gsp.losses.ContrastiveLoss(), seed=0)
        value = loss.compute(
            labels=np.array([0, 0, 7, 7, 3, 3, 5, 5]),
            histograms=rng.dirichlet(np.ones(16), size=8),
            embeddings=rng.normal(size=(8, 4)),
        )
        ```

    Reference:
        XML, (2.8)-(2.10).
    """

    def __init__(
        self, pair_loss: Any, ridge: float = 0.05, seed: int | None = None
    ) -> None:
        if not hasattr(pair_loss, "inside_loss"):
            raise TypeError(
                "`pair_loss` must be a pair loss or a proxy loss of "
                f"`keras_gsp.losses`. Received: pair_loss={pair_loss!r}."
            )
        check_positive(ridge=ridge)
        self.pair_loss = pair_loss
        self.ridge = ridge
        check_integer(is_optional=True, seed=seed)
        self.seed = seed

    def compute(
        self,
        labels: Tensor,
        histograms: Tensor,
        embeddings: Tensor,
        first_half: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch, a scalar: the sum over its two halves.

        Args:
            labels: (batch,) or (batch, 1), integers of 32 bits.
            histograms: (batch, num_prototypes), rows that sum to 1.
            embeddings: (batch, embedding_size), fitted and expressed.
            first_half: (batch,), boolean, the samples of the first half; no
                class should be in both. `None`: drawn by
                `class_disjoint_halves`, whose errors apply.

        Raises:
            TypeError: labels that are no numbers,
                `first_half` not boolean, a proxy loss.
            ValueError: wrong shapes.
        """
        if self.pair_loss.needs:
            raise TypeError(
                "`compute` needs a pair loss; with a proxy loss use "
                "`MetricLearner` or `express`. Received: "
                f"pair_loss={self.pair_loss!r}."
            )
        labels = flat_labels(batch_labels(labels))
        labels = first_occurrences(labels)
        first_half = given_or_drawn_halves(labels, first_half, self.seed)
        parts = StepParts(labels=labels, embeddings=embeddings)
        return self._loss(parts, histograms, embeddings, first_half)

    @property
    def needs(self) -> tuple[str, ...]:
        """Parts of a step that are required; see `MetricLoss`."""
        return ("histograms", "first_half", *self.pair_loss.needs)

    def training_loss(self, parts: StepParts) -> Tensor:
        targets = parts.embeddings if parts.pooled is None else parts.pooled
        return self._loss(parts, parts.histograms, targets, parts.first_half)

    def express(
        self,
        labels: Tensor,
        histograms: Tensor,
        embeddings: Tensor,
        first_half: Tensor | None = None,
    ) -> Tensor:
        """Returns the embeddings predicted by the other half's prototypes.

        (batch, embedding_size), float32 or float64, not normalized. Arguments
        and errors are those of `compute`.
        """
        histograms = at_least_float32(histograms)
        first_half = given_or_drawn_halves(labels, first_half, self.seed)
        check_same_size(first_half, histograms, ("labels", "histograms"))
        return cross_half_prediction(
            histograms, embeddings, first_half, ridge=self.ridge
        )

    def _loss(self, parts, histograms, targets, first_half):
        """The sum of the losses of both halves."""
        expressed = self.express(parts.labels, histograms, targets, first_half)
        parts = replace(parts, embeddings=expressed)
        loss = self.pair_loss.inside_loss(parts, first_half)
        other_half = ops.logical_not(first_half)
        return loss + self.pair_loss.inside_loss(parts, other_half)
