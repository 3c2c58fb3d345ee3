"""Classification of embeddings that the rest of their batch has refined."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.metric_loss import MetricLoss, StepParts
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.labels import class_indices, nan_without_row
from keras_gsp.ops.precision import exact_mean


@keras.saving.register_keras_serializable(package="keras_gsp")
class IntraBatchLoss(MetricLoss):
    r"""Classifies each embedding alone, and with what its batch says.

    With :math:`p(x)` the class probabilities of the plain embeddings and
    :math:`p(x')` those of the embeddings after messages between the samples
    of the batch, both from an `IntraBatchClassifier`, and labels smoothed by
    :math:`s` over C classes:

    .. math:: H(p(x')) + w H(p(x)), \quad H(p) = -(1 - s) \log p_y
        - \frac{s}{C} \sum_c \log p_c

    each averaged over the batch. The embeddings reach the loss as the encoder
    returns them; every other sample of the batch has a gradient from the
    first term. Needs `MetricLearner(loss_layer=IntraBatchClassifier(...))`,
    and has neither pairs nor proxies: no memory and no alternation go with
    it. Within `CrossBatchLoss` each half's expressed embeddings are
    classified, with messages from that half alone, as XML's (2.10) has it:
    the other half's are expressed by what was fitted to this one. Outside
    training only the plain embeddings count, and a class without a row gives
    NaN.

    Args:
        label_smoothing: s, in [0, 1). Default 0.1.
        plain_weight: w, 0 or more. Default 1.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Raises:
        ValueError: an argument outside its range; in a call, a label outside
            [0, num_classes).

    Example:

    ```python
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    classifier = gsp.layers.IntraBatchClassifier(num_classes=3, num_heads=2)
    learner = gsp.models.MetricLearner(encoder, loss_layer=classifier)
    learner.compile("adam", loss=gsp.losses.IntraBatchLoss())
    images = np.random.default_rng(0).normal(size=(12, 8))
    learner.fit(images, np.arange(12) % 3, verbose=0)
    ```

    Reference:
        Seidenschwarz et al., "Learning Intra-Batch Connections for Deep
        Metric Learning" (LIBC), ICML 2021, section 3.4; with GSP and with
        XML in Table 3 of their papers. Its temperature on the logits is left
        out, as the linear classifiers learn their own scale.
    """

    needs = ("loss_layer",)

    def __init__(
        self,
        label_smoothing: float = 0.1,
        plain_weight: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(
            label_smoothing=label_smoothing, plain_weight=plain_weight
        )
        if label_smoothing >= 1.0:
            raise ValueError(
                "`label_smoothing` must be in [0, 1). Received: "
                f"label_smoothing={label_smoothing}."
            )
        self.label_smoothing = label_smoothing
        self.plain_weight = plain_weight

    def training_loss(self, parts: StepParts) -> Any:
        """Returns the loss of a training step, a scalar."""
        plain, refined = parts.loss_layer(parts.embeddings)
        return exact_mean(self._terms(parts.labels, plain, refined))

    def validation_loss(self, parts: StepParts) -> Any:
        """Returns the plain embeddings' part of the loss, a scalar."""
        plain, _ = parts.loss_layer(parts.embeddings)
        return exact_mean(self._cross_entropy(parts.labels, plain))

    def inside_loss(self, parts: StepParts, is_inside: Any) -> Any:
        """Returns the loss of some samples, as if they were the batch."""
        plain, refined = parts.loss_layer(parts.embeddings, groups=is_inside)
        terms = self._terms(parts.labels, plain, refined)
        inside = ops.cast(is_inside, terms.dtype)
        return ops.sum(inside * terms) / ops.maximum(ops.sum(inside), 1.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "plain_weight": self.plain_weight,
        }

    def _terms(self, labels, plain, refined):
        terms = self._cross_entropy(labels, refined)
        if self.plain_weight:
            plain = self._cross_entropy(labels, plain)
            terms = terms + self.plain_weight * plain
        return terms

    def _cross_entropy(self, labels, logits):
        rows = class_indices(labels, logits.shape[-1])
        logs = ops.log_softmax(logits, axis=-1)
        own = ops.take_along_axis(logs, ops.maximum(rows, 0)[:, None], axis=1)
        spread = ops.mean(logs, axis=-1)
        terms = -(1.0 - self.label_smoothing) * own[:, 0]
        terms -= self.label_smoothing * spread
        return nan_without_row(terms, rows)
