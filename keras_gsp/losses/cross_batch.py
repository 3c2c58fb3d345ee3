"""Cross-batch metric learning: embeddings said in the other half's words."""

from dataclasses import replace
from typing import Any, Self

import keras
from keras import ops

from keras_gsp.losses.metric_loss import StepParts
from keras_gsp.ops.arguments import (
    check_not_negative,
    check_positive,
    check_seed,
)
from keras_gsp.ops.halves import given_or_drawn_halves
from keras_gsp.ops.labels import check_same_length, first_occurrences
from keras_gsp.ops.precision import at_least_float32, exact_mean
from keras_gsp.ops.ridge import cross_half_prediction
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class CrossBatchLoss:
    """Applies a pair loss to embeddings expressed by foreign prototypes.

    The batch is split into two halves without a common class. Prototypes are
    fitted to each half in closed form, so that a histogram times them gives
    the embedding, and each sample is expressed with the prototypes of the
    other half: `Yhat_1 = V_2 Z_1`, `Yhat_2 = V_1 Z_2`. The pair loss then
    compares expressed embeddings inside each half:

    `loss = pair_loss(Yhat_1) + pair_loss(Yhat_2)`,

    a sum of two losses, each averaged as the pair loss does and over its
    half alone. With `reconstruction_weight` r the term
    `r * mean_b |yhat_b - y_b|^2` is added, over all samples: the joint
    objective the paper mentions beside the one it uses.

    What is fitted are plain averages of the features, not normalized: it is
    such averages that histograms times prototypes give, and their lengths
    say how far an image is from its prototypes. So
    `MetricLearner(regularizer=CrossBatchLoss(...))` takes the histograms and
    `"pooled"` vectors of its encoder (`build_encoder(histogram=...)` gives
    both), and the embeddings of an encoder that has no such output. With a
    proxy loss in place of the pair loss (ProxyAnchor + XML in the paper's
    table) each half is compared with the learner's proxies in the same way.

    Args:
        pair_loss: a `PairLoss`, such as `ContrastiveLoss()`; it normalizes
            the expressed embeddings as it was told to. Or a `ProxyLoss`, for
            `express` and `MetricLearner` alone: it has no pairs. Or another
            `MetricLoss` that has an `inside_loss`.
        ridge: eps of the fit, positive, once for each half (the text before
            (2.10); (2.9) halves it). Default 0.05, the paper's.
        seed: int (always the same draw of halves) or `None` (a new draw in
            each call, from the global generator of Keras); not used when
            `first_half` is given.
        reconstruction_weight: r, at least 0. Default 0: no such term.

    Raises:
        TypeError: `pair_loss` neither a pair loss nor a proxy loss, or
            `seed` neither int nor `None`.
        ValueError: `ridge` not positive, `reconstruction_weight` negative.

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
        self,
        pair_loss: Any,
        ridge: float = 0.05,
        seed: int | None = None,
        *,
        reconstruction_weight: float = 0.0,
    ) -> None:
        if not hasattr(pair_loss, "inside_loss"):
            raise TypeError(
                "`pair_loss` must be a pair loss or a proxy loss of "
                f"`keras_gsp.losses`. Received: pair_loss={pair_loss!r}."
            )
        check_positive(ridge=ridge)
        check_not_negative(reconstruction_weight=reconstruction_weight)
        self.pair_loss = pair_loss
        self.ridge = ridge
        self.seed = check_seed(seed)
        self.reconstruction_weight = reconstruction_weight

    def compute(
        self,
        labels: Tensor,
        histograms: Tensor,
        embeddings: Tensor,
        first_half: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch: the sum over its two halves.

        Args:
            labels: (batch,) or (batch, 1), integers or floats.
            histograms: (batch, num_prototypes), rows that sum to 1.
            embeddings: (batch, embedding_size), what is fitted and expressed.
            first_half: (batch,), boolean, the samples of the first half; no
                class should be in both. Drawn by `class_disjoint_halves`
                when `None`.

        Returns:
            Scalar, float32 or float64. A half without pairs gives what the
            pair loss gives for them, 0 for those of this package.

        Raises:
            TypeError: labels that are strings, `first_half` not boolean, a
                proxy loss in place of the pair loss.
            ValueError: fewer than two classes to split, shapes that do not
                fit. In a TensorFlow graph the former is
                `tf.errors.InvalidArgumentError`; XLA cannot raise.
        """
        if self.pair_loss.needs:
            raise TypeError(
                "`compute` needs a pair loss; apply a proxy loss to the "
                "similarities of what `express` returns. Received: "
                f"pair_loss={self.pair_loss!r}."
            )
        labels = first_occurrences(labels)
        first_half = given_or_drawn_halves(labels, first_half, self.seed)
        parts = StepParts(labels=labels, embeddings=embeddings)
        return self._loss(parts, histograms, embeddings, first_half)

    @property
    def needs(self) -> tuple[str, ...]:
        """What a step has to bring; see `MetricLoss`."""
        return ("histograms", "first_half", *self.pair_loss.needs)

    def training_loss(self, parts: StepParts) -> Any:
        """Returns the loss of a training step, a scalar."""
        targets = parts.embeddings if parts.pooled is None else parts.pooled
        return self._loss(parts, parts.histograms, targets, parts.first_half)

    def express(
        self,
        labels: Tensor,
        histograms: Tensor,
        embeddings: Tensor,
        first_half: Tensor | None = None,
    ) -> Tensor:
        """Returns each embedding in terms of the other half's prototypes.

        Args:
            labels: as in `compute`.
            histograms: as in `compute`.
            embeddings: as in `compute`.
            first_half: as in `compute`.

        Returns:
            (batch, embedding_size), in the order of the batch, float32 or
            float64, not normalized.

        Raises:
            TypeError: as in `compute`.
            ValueError: as in `compute`.
        """
        histograms = at_least_float32(histograms)
        first_half = given_or_drawn_halves(labels, first_half, self.seed)
        check_same_length(first_half, histograms, ("labels", "histograms"))
        return cross_half_prediction(
            histograms, embeddings, first_half, ridge=self.ridge
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "pair_loss": keras.saving.serialize_keras_object(self.pair_loss),
            "ridge": self.ridge,
            "seed": self.seed,
            "reconstruction_weight": self.reconstruction_weight,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the loss that `get_config` described."""
        pair_loss = keras.saving.deserialize_keras_object(config["pair_loss"])
        return cls(**{**config, "pair_loss": pair_loss})

    def _loss(self, parts, histograms, targets, first_half):
        """The sum over the halves, each averaged by itself."""
        expressed = self.express(parts.labels, histograms, targets, first_half)
        parts = replace(parts, embeddings=expressed)
        loss = self.pair_loss.inside_loss(parts, first_half)
        loss += self.pair_loss.inside_loss(parts, ops.logical_not(first_half))
        if self.reconstruction_weight:
            targets = ops.cast(targets, expressed.dtype)
            errors = ops.sum(ops.square(expressed - targets), axis=-1)
            loss += self.reconstruction_weight * exact_mean(errors)
        return loss
