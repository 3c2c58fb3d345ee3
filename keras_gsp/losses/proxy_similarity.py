"""Base of the losses on similarities to class proxies."""

from functools import partial

from keras import ops

from keras_gsp._checks import check_same_size, check_shape
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import MetricLoss, StepParts, check_not_empty
from keras_gsp.ops.labels import (
    class_indices,
    flat_labels,
    nan_without_row,
)
from keras_gsp.ops.pairs import log_one_plus_sum_exp, shares_of_mean_over
from keras_gsp.ops.precision import at_least_float32, exact_mean


class ProxyLoss(MetricLoss):
    """Base of the losses that compare embeddings with class proxies.

    The input is the output of `ClassProxies`; the loss holds no weights and
    does not use pairs of samples: a batch without positive pairs is no special
    case. A subclass defines one method, `sample_terms`, which returns one term
    per sample. Their mean is the loss, a sample weight multiplies the term of
    its sample, and `reduction="sum"` gives `batch` times the loss. The
    arithmetic is in float32 at least, whatever the policy. Every loss raises
    `ValueError` for an argument outside its range.

    Args:
        reduction: as in `keras.losses.Loss`.
        name: string.
        dtype: the dtype in which similarities arrive in `call`.
    """

    needs = ("proxies",)

    def __call__(
        self,
        labels: Tensor,
        similarities: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss, a scalar, or (batch,) with `reduction=None`.

        Args:
            labels: (batch,) or (batch, 1), class numbers in
                [0, num_classes).
            similarities: (batch, num_classes, proxies_per_class), cosines.
            sample_weight: (batch,), multiplies the term of its sample.

        Raises:
            TypeError: labels that are strings.
            ValueError: wrong shapes, an empty batch; a label outside
                [0, num_classes) if its value is known. In a TensorFlow graph
                that is an `InvalidArgumentError`; under XLA the loss is NaN.
        """
        labels = flat_labels(batch_labels(labels))
        similarities = ops.convert_to_tensor(similarities)
        shape = "(batch, num_classes, proxies_per_class)"
        check_shape(shape, similarities=similarities)
        check_same_size(labels, similarities, ("labels", "similarities"))
        check_not_empty(similarities, "similarities")
        # Keras casts labels to float32, where large ids would collide.
        labels = class_indices(labels, ops.shape(similarities)[1])
        return super().__call__(labels, similarities, sample_weight)

    def call(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns the term of each sample, (batch,), whose mean is the loss."""
        labels = ops.cast(labels, "int32")  # Keras has cast it to float32.
        return self._known_terms(self.sample_terms, labels, similarities)

    def validation_loss(self, parts: StepParts) -> Tensor:
        """Returns the loss between batch and proxies, a scalar."""
        return self._loss_of(self.sample_terms, parts)

    def inside_loss(self, parts: StepParts, is_inside: Tensor) -> Tensor:
        """Returns the loss of the samples inside alone, 0 without any."""
        return self._loss_of(
            partial(self.inside_terms, is_inside=is_inside), parts
        )

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns one term per sample, (batch,); defined by each subclass.

        `labels`: (batch,), int32, in [0, num_classes). `similarities`: (batch,
        num_classes, proxies_per_class), float32 or float64.
        """
        raise NotImplementedError

    def inside_terms(
        self, labels: Tensor, similarities: Tensor, is_inside: Tensor
    ) -> Tensor:
        """Returns terms (batch,) whose mean is the loss of the samples inside.

        For subclasses whose terms depend on the other samples to override.
        """
        terms = self.sample_terms(labels, similarities)
        return shares_of_mean_over(terms, is_inside)

    def _loss_of(self, terms, parts):
        similarities = parts.proxies(parts.embeddings)
        return exact_mean(self._known_terms(terms, parts.labels, similarities))

    def _known_terms(self, terms, labels, similarities):
        similarities = at_least_float32(similarities)
        indices = class_indices(labels, ops.shape(similarities)[1])
        terms = terms(ops.maximum(indices, 0), similarities)
        return nan_without_row(terms, indices)


def own_similarities(labels: Tensor, similarities: Tensor) -> Tensor:
    """Returns similarities (batch, ...) to each sample's own class."""
    rank = len(similarities.shape)
    index = ops.reshape(labels, (-1,) + (1,) * (rank - 1))
    return ops.squeeze(ops.take_along_axis(similarities, index, axis=1), axis=1)


def nearest_of_class(similarities: Tensor) -> Tensor:
    """Returns each class's largest similarity, (batch, num_classes)."""
    # The gradient of a maximum searches for ties, which takes time.
    if similarities.shape[-1] == 1:
        return ops.squeeze(similarities, axis=-1)
    return ops.max(similarities, axis=-1)


def is_own_class(labels: Tensor, similarities: Tensor) -> Tensor:
    """Marks each sample's class, boolean (batch, num_classes)."""
    classes = ops.arange(ops.shape(similarities)[1], dtype="int32")
    return labels[:, None] == classes[None, :]


def softmax_terms(labels: Tensor, differences: Tensor) -> Tensor:
    """Returns each sample's softmax cross-entropy, (batch,).

    From the logits minus the logit of the own class, whose entry is not used.
    """
    is_other = ops.logical_not(is_own_class(labels, differences))
    return log_one_plus_sum_exp(differences, is_other)
