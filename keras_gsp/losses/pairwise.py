"""Base of the losses on pairs of embeddings."""

from collections.abc import Callable
from functools import partial
from typing import Any

from keras import ops

from keras_gsp._checks import (
    check_choice,
    check_integer,
    check_interval,
    check_same_size,
    check_shape,
    known_to_differ,
)
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import (
    MetricLoss,
    References,
    StepParts,
    check_not_empty,
)
from keras_gsp.ops.labels import flat_labels
from keras_gsp.ops.mining import MINERS
from keras_gsp.ops.normalization import check_normalization, normalize
from keras_gsp.ops.pairs import PairWeights, pair_weights
from keras_gsp.ops.precision import exact_mean

SHAPE = "(batch, embedding_size)"


class PairLoss(MetricLoss):
    """Base of the losses that compare embeddings of equal and unequal class.

    A subclass defines one method, `anchor_terms`. This class checks labels,
    normalizes embeddings, weights the pairs and removes each embedding's pair
    with itself by its index. `loss(labels, embeddings)` compares each
    embedding of the batch with the others; `loss.between(...)` compares the
    batch with references such as proxies or an embedding memory.

    `call` returns one term per anchor. Their mean is the loss, a sample
    weight multiplies the term of its anchor, and `reduction="sum"` gives
    `batch` times the loss.

    Args:
        normalization: `"l2"` (unit sphere, the default, for which the other
            defaults are chosen: distances in [0, 2], cosines in [-1, 1]),
            `"ball"` (unit ball) or `None` (as given), applied to embeddings
            and references before they are compared.
        ignore_class: int, a class label whose samples have no pairs, or
            `None`.
        miner: which pairs are kept. `None` (default): all. `"batch_hard"`:
            each anchor's farthest positive and nearest negative (Hermans et
            al., 2017). `"semi_hard"`: each positive and the nearest negative
            farther than it (FaceNet). `"distance_weighted"`: for each
            positive one negative, drawn uniformly over distances (Wu et al.,
            2017). `"multi_similarity"`: pairs within 0.1 of the hardest pair
            of the other kind (Wang et al., 2019). Or a function of
            (embeddings, references, weights, seed) that returns
            `gsp.ops.PairWeights`.
        seed: int (the same draws in every call) or `None` (new draws, from
            the global generator of Keras; on JAX only outside compiled
            functions), for a miner that draws.
        reduction: as in `keras.losses.Loss`.
        name: string.
        dtype: the dtype in which embeddings arrive in `call`. The arithmetic
            is in float32 at least, whatever the policy.

    Raises:
        ValueError: unknown `normalization` or `miner`; a `seed` or
            `ignore_class` that is no integer.

    Example:

    ```python
    loss = gsp.losses.ContrastiveLoss(miner="batch_hard", ignore_class=-1)
    embeddings = np.random.default_rng(0).normal(size=(5, 3))
    value = loss(np.array([0, 0, 1, 1, -1]), embeddings)
    ```
    """

    takes = ("proxies", "memory", "in_batch_weight")
    # Miners that `anchor_terms` applies itself.
    own_miners: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        normalization: str | None = "l2",
        ignore_class: int | None = None,
        miner: str | Callable[..., PairWeights] | None = None,
        seed: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.normalization = check_normalization(normalization)
        check_integer(is_optional=True, ignore_class=ignore_class, seed=seed)
        if ignore_class is not None:
            check_interval(
                "(-2147483648, 2147483647)", ignore_class=ignore_class
            )
        if not callable(miner):
            check_choice(*MINERS, None, miner=miner)
        self.ignore_class = ignore_class
        self.miner: Any = miner
        self.seed = seed

    def __call__(
        self,
        labels: Tensor,
        embeddings: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch.

        Args:
            labels: (batch,) or (batch, 1), integers of 32 bits.
            embeddings: (batch, embedding_size).
            sample_weight: (batch,), multiplies the term of its anchor.

        Returns:
            Scalar, or (batch,) with `reduction=None`.

        Raises:
            TypeError: labels that are no numbers.
            ValueError: wrong shapes, an empty batch, fractions, NaN, larger
                integers.
        """
        labels, embeddings = self._checked(labels, embeddings)
        # Keras casts labels to float32, where large ids would collide.
        pairs = self._pairs_within(labels, embeddings)
        return super().__call__(pairs, embeddings, sample_weight)

    def call(self, pairs: PairWeights, embeddings: Tensor) -> Tensor:
        """Returns the term of each anchor, (batch,), whose mean is the loss."""
        embeddings = normalize(embeddings, self.normalization)
        return self._terms(embeddings, embeddings, pairs)

    def between(
        self,
        labels: Tensor,
        embeddings: Tensor,
        reference_labels: Tensor,
        reference_embeddings: Tensor,
        *,
        excluded: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch against references.

        Args:
            labels: (batch,) or (batch, 1).
            embeddings: (batch, embedding_size), the anchors.
            reference_labels: (references,) or (references, 1).
            reference_embeddings: (references, embedding_size).
            excluded: boolean (batch, references), or `None`: pairs left out
                of every sum and every count, such as an embedding's pair
                with itself or an empty memory slot.

        Returns:
            Scalar, float32 or float64: the mean over the anchors. Anchors
            whose pairs are all excluded do not count.

        Raises:
            TypeError, ValueError: as in `__call__`.
        """
        labels, embeddings = self._checked(labels, embeddings)
        references = ops.convert_to_tensor(reference_embeddings)
        check_shape(SHAPE, reference_embeddings=references)
        reference_labels = flat_labels(batch_labels(reference_labels))
        names = ("reference_labels", "reference_embeddings")
        check_same_size(reference_labels, references, names)
        names = ("embeddings", "reference_embeddings")
        check_same_size(embeddings, references, names, axis=1)
        _check_excluded(excluded, embeddings, references)
        known = References(reference_labels, references, excluded)
        return self._against(known, labels, embeddings)

    def training_loss(self, parts: StepParts) -> Tensor:
        """Returns the sum of the losses against all references.

        Plus `in_batch_weight` times the loss within the batch; without
        references the loss within the batch alone. While references warm up,
        its weight is at least 1.
        """
        labels, embeddings = parts.labels, parts.embeddings

        def within(weight=1.0):
            return weight * self._within(labels, embeddings)

        if not parts.references:
            return within()
        weight = parts.in_batch_weight
        loss = within(weight) if weight > 0.0 else 0.0
        for references in parts.references:
            loss += references.once_warm(
                partial(self._against, references, labels, embeddings),
                partial(within, max(0.0, 1.0 - weight)),
            )
        return loss

    def validation_loss(self, parts: StepParts) -> Tensor:
        """Returns the loss within the batch."""
        return self._within(parts.labels, parts.embeddings)

    def inside_loss(self, parts: StepParts, is_inside: Tensor) -> Tensor:
        """Returns the loss of some samples of a batch, as if they were all."""
        is_pair = is_inside[:, None] & is_inside[None, :]
        excluded = ~is_pair | _is_self(parts.embeddings)
        labels, embeddings = parts.labels, parts.embeddings
        known = References(labels, embeddings, excluded)
        return self._against(known, labels, embeddings)

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        """Returns one term per anchor; defined by each subclass.

        Args:
            embeddings: (batch, embedding_size), normalized, float32 or
                float64.
            references: (references, embedding_size), likewise.
            pairs: the weights (batch, references) of pairs of equal class, 1
                or another weight above 0, 0 for all other pairs; and those of
                unequal class. A pair of weight 0 in both is left out.

        Returns:
            (batch,), whose mean is the loss.
        """
        raise NotImplementedError

    def _checked(self, labels, embeddings):
        labels = flat_labels(batch_labels(labels))
        embeddings = ops.convert_to_tensor(embeddings)
        check_shape(SHAPE, embeddings=embeddings)
        check_same_size(labels, embeddings)
        check_not_empty(embeddings, "embeddings")
        return labels, embeddings

    def _within(self, labels, embeddings):
        """The loss of a batch of checked labels."""
        pairs = self._pairs_within(labels, embeddings)
        return exact_mean(self.call(pairs, embeddings))

    def _against(self, references, labels, embeddings):
        """The loss of a batch of checked labels against references."""
        pairs = pair_weights(labels, references.labels, self.ignore_class)
        if references.excluded is not None:
            pairs = pairs.without(ops.cast(references.excluded, "bool"))
        embeddings, others = (
            normalize(vectors, self.normalization)
            for vectors in (embeddings, references.embeddings)
        )
        return exact_mean(self._terms(embeddings, others, pairs))

    def _pairs_within(self, labels, embeddings):
        pairs = pair_weights(labels, labels, self.ignore_class)
        return pairs.without(_is_self(embeddings))

    def _terms(self, embeddings, references, pairs):
        """The terms of the anchors over the pairs that the miner keeps."""
        references = ops.cast(references, embeddings.dtype)
        pairs = pairs.cast(embeddings.dtype)
        if self.miner is not None and self.miner not in self.own_miners:
            mine = MINERS.get(self.miner, self.miner)
            mined = mine(embeddings, references, pairs, self.seed)
            pairs = PairWeights(*map(ops.stop_gradient, mined))
        return self.anchor_terms(embeddings, references, pairs)


def _is_self(embeddings):
    positions = ops.arange(ops.shape(embeddings)[0])
    return positions[:, None] == positions[None, :]


def _check_excluded(excluded, embeddings, references):
    shape = embeddings.shape[0], references.shape[0]
    if excluded is not None and known_to_differ(excluded.shape, shape):
        raise ValueError(
            "`excluded` must have shape (batch, references). Received: shape "
            f"{tuple(excluded.shape)}, with {shape[0]} embeddings and "
            f"{shape[1]} references."
        )
