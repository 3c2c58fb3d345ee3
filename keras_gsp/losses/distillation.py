"""Distillation: a small encoder learns the embeddings of a large one."""

import keras
from keras import ops

from keras_gsp.losses.metric_loss import MetricLoss, StepParts, check_not_empty
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.labels import check_same_length, flat_labels
from keras_gsp.ops.precision import at_least_float32, exact_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class DistillationLoss(MetricLoss):
    r"""Trains an encoder to the embeddings that a teacher gives its images.

    .. math:: L = \frac{1}{n} \sum_i \left( a\, |s_i - t_i|^2
        + \frac{b}{n} \sum_j (|s_i - s_j| - |t_i - t_j|)^2 \right)
        + c\, \ell(y, s; y, t)

    with s the batch's embeddings, t the teacher's of the same images, a
    `regression`, b `relational`, c `metric` and :math:`\ell` a pair loss of
    each embedding against the teacher's gallery, `loss.between(labels, s,
    labels, t)`. A small encoder then searches what the large one embedded
    (asymmetric search): regression and metric loss put its embeddings into
    the teacher's space, the relational term only keeps distances.

    Labels are the teacher's embeddings, computed once. With a metric loss
    they are a dictionary: `"label"`, the classes, and `"teacher"`.

    Args:
        loss: pair loss with class labels, for `metric` above 0. Default
            `None`.
        regression: factor a, at least 0. Default 1.
        relational: factor b, at least 0. Default 0.
        metric: factor c, at least 0. Default `None`: 1 with a `loss`, else 0.
        name: string.

    Call arguments:
        labels: (batch, embedding_size), the teacher's embeddings.
        embeddings: (batch, embedding_size).

    Raises:
        TypeError: a `loss` that is no pair loss.
        ValueError: a negative factor, or none above 0; `loss` and `metric`
            without each other; at the first call, a teacher of another size
            than the encoder.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    images = np.random.default_rng(0).normal(size=(8, 6))
    teacher = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    student = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    learner = gsp.models.MetricLearner(student)
    learner.compile("adam", loss=gsp.losses.DistillationLoss(relational=1.0))
    learner.fit(images, teacher.predict(images, verbose=0), verbose=0)
    ```

    Reference:
        Budnik and Avrithis, "Asymmetric metric learning for knowledge
        transfer", CVPR 2021, for regression and the metric loss against a
        teacher's gallery; Park et al., "Relational knowledge distillation",
        CVPR 2019, equation (4), whose Huber loss and mean distance are left
        out, as both sides have the same scale.
    """

    takes = ("teacher",)

    def __init__(
        self,
        loss: PairLoss | None = None,
        *,
        regression: float = 1.0,
        relational: float = 0.0,
        metric: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if loss is not None and not isinstance(loss, PairLoss):
            raise TypeError(
                f"`loss` must be a pair loss or None. Received: loss={loss!r}."
            )
        weights = {
            "regression": regression,
            "relational": relational,
            "metric": float(loss is not None) if metric is None else metric,
        }
        check_not_negative(**weights)
        if not sum(weights.values()):
            raise ValueError(
                "`regression`, `relational` or `metric` must be above 0. "
                f"Received: {weights}."
            )
        if (weights["metric"] > 0.0) != (loss is not None):
            raise ValueError(
                "`loss` must be a pair loss exactly when `metric` is above "
                f"0. Received: loss={loss!r}, metric={metric}."
            )
        self.loss = loss
        self.regression = regression
        self.relational = relational
        self.metric = weights["metric"]

    def call(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        """Returns regression and relational term of each sample, (batch,)."""
        teacher, student = self._checked(labels, embeddings)
        terms = self.regression * ops.sum(ops.square(student - teacher), axis=1)
        if self.relational:
            errors = pairwise_distances(student, student)
            errors -= pairwise_distances(teacher, teacher)
            terms += self.relational * ops.mean(ops.square(errors), axis=1)
        return terms

    def checked_labels(self, labels: Tensor) -> Tensor:
        """Returns the teacher's embeddings, or classes beside them."""
        labels = ops.convert_to_tensor(labels)
        return labels if len(labels.shape) == 2 else flat_labels(labels)

    def validation_loss(self, parts: StepParts) -> Tensor:
        """Returns the loss of a batch, a scalar."""
        is_alone = parts.teacher is None
        teacher = parts.labels if is_alone else parts.teacher
        loss = exact_mean(self.call(teacher, parts.embeddings))
        if self.loss is None:
            return loss
        if is_alone:
            raise ValueError(
                "Labels must be a dictionary of `label`, the classes, and "
                "`teacher`, the embeddings, with `metric` above 0. Received: "
                f"a tensor of shape {tuple(parts.labels.shape)}."
            )
        gallery_loss = self.loss.between(
            parts.labels, parts.embeddings, parts.labels, teacher
        )
        return loss + self.metric * gallery_loss

    def _checked(self, teacher, student):
        teacher = ops.convert_to_tensor(teacher)
        student = at_least_float32(ops.convert_to_tensor(student))
        if len(teacher.shape) != 2 or teacher.shape[1] != student.shape[1]:
            raise ValueError(
                "The teacher's embeddings must have the encoder's embedding "
                f"size, {student.shape[1]}. Received: shape "
                f"{tuple(teacher.shape)}. Project one of them: "
                "`build_encoder(..., embedding_size=...)` of the teacher's "
                "size, or `gsp.layers.Whitening(...)` of the teacher's "
                "embeddings."
            )
        check_same_length(teacher, student, ("teacher", "embeddings"))
        check_not_empty(student, "embeddings")
        return ops.cast(teacher, student.dtype), student
