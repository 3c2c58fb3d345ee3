"""Intra-batch loss: classification with messages between samples."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_interval
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import MetricLoss, StepParts
from keras_gsp.ops.labels import class_indices, nan_without_row
from keras_gsp.ops.precision import exact_mean


@keras.saving.register_keras_serializable(package="keras_gsp")
class IntraBatchLoss(MetricLoss):
    r"""Classifies embeddings before and after messages within the batch (LIBC).

    With :math:`p(x)` the class probabilities of the plain embeddings and
    :math:`p(x')` those of the embeddings after messages between the samples
    of the batch, both from an `IntraBatchClassifier`, and labels smoothed by
    :math:`s` over C classes, the mean over the batch of

    .. math:: H(p(x')) + H(p(x)), \quad H(p) = -(1 - s) \log p_y
        - \frac{s}{C} \sum_c \log p_c

    The embeddings are not normalized. Requires
    `MetricLearner(loss_layer=IntraBatchClassifier(...))` and excludes proxies
    and memory. Within `CrossBatchLoss` messages come from the same half only
    (XML, (2.10)). Outside training only the plain embeddings count.

    Args:
        label_smoothing: s, in [0, 1). Default 0.1.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    classifier = gsp.layers.IntraBatchClassifier(num_classes=3, num_heads=2)
    learner = gsp.models.MetricLearner(encoder, loss_layer=classifier)
    learner.compile("adam", loss=gsp.losses.IntraBatchLoss())
    learner.fit(np.random.normal(size=(12, 8)), np.arange(12) % 3, verbose=0)
    ```

    Reference:
        Seidenschwarz et al., "Learning Intra-Batch Connections" (LIBC), ICML
        2021, 3.4, without the temperature: the classifiers learn a scale.
    """

    needs = ("loss_layer",)

    def __init__(self, label_smoothing: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_interval("[0, 1)", label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def training_loss(self, parts: StepParts) -> Tensor:
        """Returns the loss of a training step, a scalar."""
        logits = parts.loss_layer(parts.embeddings)
        return exact_mean(self._terms(parts.labels, *logits))

    def validation_loss(self, parts: StepParts) -> Tensor:
        """Returns the plain embeddings' part of the loss, a scalar."""
        plain, _ = parts.loss_layer(parts.embeddings)
        return exact_mean(self._cross_entropy(parts.labels, plain))

    def inside_loss(self, parts: StepParts, is_inside: Tensor) -> Tensor:
        """Returns the loss of some samples, as if they were the batch."""
        logits = parts.loss_layer(parts.embeddings, groups=is_inside)
        terms = self._terms(parts.labels, *logits)
        inside = ops.cast(is_inside, terms.dtype)
        return ops.sum(inside * terms) / ops.maximum(ops.sum(inside), 1.0)

    def _terms(self, labels, plain, refined):
        terms = self._cross_entropy(labels, refined)
        return terms + self._cross_entropy(labels, plain)

    def _cross_entropy(self, labels, logits):
        rows = class_indices(labels, logits.shape[-1])
        logs = ops.log_softmax(logits, axis=-1)
        own = ops.take_along_axis(logs, ops.maximum(rows, 0)[:, None], axis=1)
        spread = ops.mean(logs, axis=-1)
        terms = -(1.0 - self.label_smoothing) * own[:, 0]
        terms -= self.label_smoothing * spread
        return nan_without_row(terms, rows)
