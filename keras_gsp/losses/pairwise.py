"""What every loss on pairs of embeddings shares."""

from typing import Any

from keras import ops

from keras_gsp.losses.metric_loss import MetricLoss, StepParts
from keras_gsp.ops.labels import (
    check_same_length,
    first_occurrences,
    flat_labels,
    same_class,
)
from keras_gsp.ops.normalization import check_normalization, normalize
from keras_gsp.ops.precision import exact_mean


class PairLoss(MetricLoss):
    """Base of the losses that compare embeddings of equal and unequal class.

    A subclass writes one method, `anchor_terms`. This class checks labels,
    normalises embeddings, removes each embedding's pair with itself by its
    index, and offers two ways in:

    - `loss(labels, embeddings)`: every embedding of the batch against every
      other one. This is what `model.compile(loss=...)` calls.
    - `loss.between(labels, embeddings, reference_labels,
      reference_embeddings)`: the batch against references such as proxies or
      an embedding memory.

    `call` returns one term an anchor. Their mean is the loss, a sample weight
    multiplies the terms of its anchor, and `reduction="sum"` gives `batch`
    times the loss.

    Args:
        normalization: `"l2"` (unit sphere), `"ball"` (unit ball) or `None`
            (as given): applied to embeddings and references before they are
            compared.
        reduction: as in `keras.losses.Loss`.
        name: string.
        dtype: the dtype in which embeddings arrive in `call`. The arithmetic
            is in float32 at least, whatever the policy.

    Raises:
        ValueError: unknown `normalization`.
    """

    takes = ("proxies", "memory", "in_batch_weight")

    def __init__(
        self,
        *,
        normalization="l2",
        reduction="sum_over_batch_size",
        name=None,
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.normalization = check_normalization(normalization)

    def __call__(self, labels, embeddings, sample_weight=None):
        """Returns the loss of a batch.

        Args:
            labels: (batch,) or (batch, 1), integers or floats.
            embeddings: (batch, embedding_size).
            sample_weight: (batch,), multiplies the terms of its anchor.

        Returns:
            Scalar, or (batch,) with `reduction=None`.

        Raises:
            TypeError: labels that are strings.
            ValueError: wrong shapes.
        """
        labels, embeddings = _checked(labels, embeddings)
        # Keras casts labels to float32, where large ids would collide.
        labels = first_occurrences(labels)
        return super().__call__(labels, embeddings, sample_weight)

    def call(self, labels, embeddings):
        """Returns the terms of each anchor against the rest of its batch.

        Args:
            labels: (batch,), numbers.
            embeddings: (batch, embedding_size).

        Returns:
            (batch,), float32 or float64, whose mean is the loss.
        """
        embeddings = normalize(embeddings, self.normalization)
        positions = ops.arange(ops.shape(embeddings)[0])
        is_other = positions[:, None] != positions[None, :]
        is_same = same_class(labels, labels)
        return self.anchor_terms(
            embeddings,
            embeddings,
            ops.logical_and(is_same, is_other),
            ops.logical_not(is_same),
        )

    def between(
        self,
        labels,
        embeddings,
        reference_labels,
        reference_embeddings,
        *,
        excluded=None,
    ):
        """Returns the loss of a batch against references.

        Args:
            labels: (batch,) or (batch, 1), integers or floats.
            embeddings: (batch, embedding_size), the anchors.
            reference_labels: (references,) or (references, 1).
            reference_embeddings: (references, embedding_size).
            excluded: boolean (batch, references), or None: pairs left out of
                every sum and every count, such as an embedding's pair with
                itself or an empty memory slot.

        Returns:
            Scalar, float32 or float64: the mean over the anchors. An anchor
            whose pairs are all excluded counts nowhere.

        Raises:
            TypeError: labels that are strings.
            ValueError: wrong shapes.
        """
        labels, embeddings = _checked(labels, embeddings)
        reference_labels, references = _checked(
            reference_labels,
            reference_embeddings,
            ("reference_labels", "reference_embeddings"),
        )
        _check_pairs(embeddings, references, excluded)
        is_positive = same_class(labels, reference_labels)
        is_negative = ops.logical_not(is_positive)
        if excluded is not None:
            kept = ops.logical_not(ops.cast(excluded, "bool"))
            is_positive = ops.logical_and(is_positive, kept)
            is_negative = ops.logical_and(is_negative, kept)
        terms = self.anchor_terms(
            normalize(embeddings, self.normalization),
            normalize(references, self.normalization),
            is_positive,
            is_negative,
        )
        return exact_mean(terms)

    def training_loss(self, parts: StepParts) -> Any:
        """Returns the loss of the batch against all references, added up.

        Plus `in_batch_weight` times the loss within the batch, which is the
        whole loss where there are no references. While references warm up
        the batch stands in for them: its weight is then 1 at least.
        """
        if not parts.references:
            return self.validation_loss(parts)
        weight = parts.in_batch_weight
        terms = []
        if weight > 0.0:
            terms.append(weight * self.validation_loss(parts))
        for references in parts.references:

            def against(references=references):
                return self.between(
                    parts.labels,
                    parts.embeddings,
                    references.labels,
                    references.embeddings,
                    excluded=references.excluded,
                )

            def stand_in():
                return max(0.0, 1.0 - weight) * self.validation_loss(parts)

            terms.append(references.once_warm(against, stand_in))
        return sum(terms)

    def inside_loss(self, parts: StepParts, is_inside: Any) -> Any:
        """Returns the loss over the pairs of some samples of a batch.

        Args:
            parts: labels and embeddings are taken.
            is_inside: boolean (batch,).

        Returns:
            Scalar, averaged over these samples alone.
        """
        positions = ops.arange(ops.shape(parts.embeddings)[0])
        is_self = positions[:, None] == positions[None, :]
        is_pair = is_inside[:, None] & is_inside[None, :] & ~is_self
        return self.between(
            parts.labels,
            parts.embeddings,
            parts.labels,
            parts.embeddings,
            excluded=~is_pair,
        )

    def anchor_terms(self, embeddings, references, is_positive, is_negative):
        """Returns the loss split over the anchors; a subclass writes this.

        Args:
            embeddings: (batch, embedding_size), normalised.
            references: (references, embedding_size), normalised.
            is_positive: boolean (batch, references), pairs of equal class.
            is_negative: boolean (batch, references), pairs of unequal class.
                A pair that is neither is left out.

        Returns:
            (batch,), whose mean is the loss.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `anchor_terms`."
        )

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "normalization": self.normalization,
            "dtype": self.dtype,
        }


def _checked(labels, embeddings, names=("labels", "embeddings")):
    labels = flat_labels(labels)
    embeddings = ops.convert_to_tensor(embeddings)
    if len(embeddings.shape) != 2:
        raise ValueError(
            f"`{names[1]}` must have shape (batch, embedding_size). "
            f"Received: shape {tuple(embeddings.shape)}."
        )
    check_same_length(labels, embeddings, names)
    return labels, embeddings


def _check_pairs(embeddings, references, excluded):
    sizes = embeddings.shape[1], references.shape[1]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(
            "`embeddings` and `reference_embeddings` must have the same size. "
            f"Received: {sizes[0]} and {sizes[1]}."
        )
    if excluded is None:
        return
    shape = embeddings.shape[0], references.shape[0]
    given = tuple(excluded.shape)
    if len(given) != 2 or any(
        None not in pair and pair[0] != pair[1]
        for pair in zip(given, shape, strict=True)
    ):
        raise ValueError(
            "`excluded` must have shape (batch, references). "
            f"Received: shape {given}, with {shape[0]} embeddings and "
            f"{shape[1]} references."
        )
