"""Losses of logarithms over pairs: NT-Xent, SupCon, Circle and MS."""

from typing import Any

from keras import ops

from keras_gsp._checks import check_interval, check_not_negative, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.mining import multi_similarity_pairs
from keras_gsp.ops.pairs import (
    PairWeights,
    anchor_shares,
    shares_of_mean_anchor,
    shares_of_mean_over,
    weighted_logsumexp,
)
from keras_gsp.ops.precision import full_matmul


class CircleLoss(PairLoss):
    r"""Weights each pair by how far its cosine is from the optimum.

    With s the cosine, m the margin and T the temperature, the mean over
    the anchors a that have both a positive and a negative pair of

    .. math:: \log\Big(1
        + \sum_n e^{[s_{an} + m]_+ (s_{an} - m) / T}
        \sum_p e^{-[1 + m - s_{ap}]_+ (s_{ap} - 1 + m) / T}\Big)

    The factors :math:`[\cdot]_+` are weights without a gradient. A batch
    without positive or without negative pairs gives 0.

    Args:
        margin: cosine, in (0, 1); positives should be above 1 - margin,
            negatives below margin. Default 0.4.
        temperature: positive, the inverse of the paper's gamma. Default
            1 / 80; 1 / 256 for faces and 1 / 128 for persons, with a margin
            of 0.25.

    Example:
        ```python
        value = gsp.losses.CircleLoss()([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Sun et al., "Circle Loss", CVPR 2020, equations (6) and (8).
    """

    def __init__(
        self, margin: float = 0.4, temperature: float = 1 / 80, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        check_interval("(0, 1)", margin=margin)
        self.margin = margin
        self.temperature = temperature

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        positive, negative = pairs
        cosines = full_matmul(embeddings, ops.transpose(references))
        fixed = ops.stop_gradient(cosines)
        pull = ops.relu(1.0 + self.margin - fixed)
        push = ops.relu(fixed + self.margin)
        attraction = -pull * (cosines - 1.0 + self.margin) / self.temperature
        repulsion = push * (cosines - self.margin) / self.temperature
        terms = ops.softplus(
            weighted_logsumexp(attraction, positive)
            + weighted_logsumexp(repulsion, negative)
        )
        has_both = ops.logical_and(
            ops.any(positive > 0.0, axis=1), ops.any(negative > 0.0, axis=1)
        )
        return shares_of_mean_over(terms, has_both)


class MultiSimilarityLoss(PairLoss):
    """Weights each pair by its own similarity and by its neighbors'.

    With `s` the inner product of normalized embeddings:

    `mean_anchors( log(1 + sum_positive exp(-alpha (s - base))) / alpha
    + log(1 + sum_negative exp(beta (s - base))) / beta )`

    The mean is over the anchors with a pair. Without positive pairs the
    negative part remains (not with a `mining_margin`), without any pair the
    loss is 0.

    Args:
        alpha: sharpness among positives, positive. Default 2.
        beta: sharpness among negatives, positive. Default 40; try 10 for a
            network with random weights, whose embeddings are nearly parallel.
        base: cosine around which pairs are weighted, in [-1, 1]. Default 0.5.
        mining_margin: cosine, at least 0, or `None` for all pairs. Keeps an
            anchor's negatives above its least similar positive minus this,
            its positives below its most similar negative plus this, nothing
            where it lacks either. 0.1 in the paper.

    Example:
        ```python
        loss = gsp.losses.MultiSimilarityLoss(mining_margin=0.1)
        value = loss(np.array([0, 0, 1, 1]), np.eye(4, 3))
        ```

    Reference:
        Wang et al., "Multi-Similarity Loss", CVPR 2019, equations (11), (12)
        (miner) and (15). The GSP papers' code has no miner, hence the default.
        The original code also drops positives of cosine above 1 - 1e-5 to drop
        self pairs; here those are removed by index and duplicates stay.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 40.0,
        base: float = 0.5,
        mining_margin: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(alpha=alpha, beta=beta)
        if mining_margin is not None:
            check_not_negative(mining_margin=mining_margin)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.mining_margin = mining_margin

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        cosines = full_matmul(embeddings, ops.transpose(references))
        kept = pairs
        if self.mining_margin is not None:
            kept = multi_similarity_pairs(
                embeddings, references, pairs, margin=self.mining_margin
            )
        above = cosines - self.base
        attraction = ops.softplus(
            weighted_logsumexp(-self.alpha * above, kept.positive)
        )
        repulsion = ops.softplus(
            weighted_logsumexp(self.beta * above, kept.negative)
        )
        terms = attraction / self.alpha + repulsion / self.beta
        return shares_of_mean_anchor(terms, pairs)


class NTXentLoss(PairLoss):
    r"""Softmax of each positive pair among the anchor's negatives (InfoNCE).

    With s the inner product of normalized embeddings, N(a) the negatives of
    anchor a, T the temperature, the mean over all positive pairs (a, p) of

    .. math:: -\log \frac{e^{s_{ap} / T}}
        {e^{s_{ap} / T} + \sum_{n \in N(a)} e^{s_{an} / T}}

    With two views of each image under one label it is the loss of SimCLR; with
    `between`, for texts and images of equal labels, one direction of the loss
    of CLIP. A batch without positive or without negative pairs gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.

    Example:
        ```python
        texts, images = np.random.normal(size=(2, 6, 4))
        loss = gsp.losses.NTXentLoss()
        value = loss.between(np.arange(6), texts, np.arange(6), images)
        ```

    Reference:
        Chen et al., "SimCLR", ICML 2020, equation (1). With several positives
        the denominator excludes the others; that of `SupConLoss` does not.
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        positive, negative = pairs
        cosines = full_matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        rivals = weighted_logsumexp(logits, negative)[:, None]
        sums = ops.sum(positive * ops.softplus(rivals - logits), axis=1)
        return anchor_shares(sums, ops.sum(positive))


class SupConLoss(PairLoss):
    r"""Softmax of each positive among all other samples (SupCon).

    With s the inner product of normalized embeddings, P(a) the positives of
    anchor a, A(a) all other samples, T the temperature, the mean over the
    anchors with a positive of

    .. math:: \frac{1}{|P(a)|} \sum_{p \in P(a)}
        -\log \frac{e^{s_{ap} / T}}{\sum_{j \in A(a)} e^{s_{aj} / T}}

    The denominator includes the other positives, which therefore push each
    other apart. A batch without positive pairs gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.

    Example:
        ```python
        value = gsp.losses.SupConLoss()([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020,
        equation (2), the sum outside the logarithm. A pair of weight w has
        that weight in the denominator too.
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        positive, negative = pairs
        cosines = full_matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        everyone = weighted_logsumexp(logits, positive + negative)
        sums = ops.sum(positive * (everyone[:, None] - logits), axis=1)
        count = ops.sum(positive, axis=1)
        has_positive = count > 0.0
        means = sums / ops.where(has_positive, count, 1.0)
        return shares_of_mean_over(means, has_positive)
