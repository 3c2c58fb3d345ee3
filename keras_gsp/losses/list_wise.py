"""Losses on each anchor's whole ranking: Smooth-AP and recall@k."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_gsp._checks import check_count, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.pairs import PairWeights, shares_of_mean_over
from keras_gsp.ops.precision import full_matmul, smaller
from keras_gsp.ops.soft_ranks import soft_ranks


class ListLoss(PairLoss):
    """Base of the losses on each anchor's whole ranking.

    A subclass defines one method, `list_terms`. Labels, `between`, proxies
    and memory work as in `PairLoss`. The loss is the mean over the anchors
    that have a positive reference; a batch without any gives 0. A positive of
    weight w counts w times among the positives, and once in the ranks.

    Args:
        **kwargs: those of `PairLoss`; `miner` must stay `None`, as a ranking
            needs all references.
    """

    # Whether the anchor is in its own list, as its most similar positive.
    counts_query = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.miner is not None:
            raise ValueError(
                "`miner` must be None: a ranking needs all references. "
                f"Received: miner={self.miner!r}."
            )

    def list_terms(
        self, similarities: Tensor, positive: Tensor, counted: Tensor
    ) -> Tensor:
        """Returns the loss of each anchor's list, (batch,); for subclasses.

        All are (batch, references): `similarities` the inner products of
        normalized embeddings in float32 or float64, `positive` how much each
        reference counts as a positive one, `counted` 1 for those in the list,
        else 0. The term of an anchor without positives must be finite.
        """
        raise NotImplementedError

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        """Returns terms whose mean is that over anchors with a positive."""
        positive, negative = pairs
        similarities = full_matmul(embeddings, ops.transpose(references))
        counted = ops.cast(positive + negative > 0.0, similarities.dtype)
        has_positive = ops.any(positive > 0.0, axis=1)
        if self.counts_query:
            query_similarity = ops.sum(
                ops.square(embeddings), axis=1, keepdims=True
            )
            similarities = ops.concatenate(
                [similarities, query_similarity], axis=1
            )
            itself = ops.ones_like(query_similarity)
            positive = ops.concatenate([positive, itself], axis=1)
            counted = ops.concatenate([counted, itself], axis=1)
        terms = self.list_terms(similarities, positive, counted)
        return shares_of_mean_over(terms, has_positive)


class SmoothAPLoss(ListLoss):
    r"""Average precision of each anchor's ranking, with smooth ranks.

    With r(p) the smooth rank of a positive among all references and
    :math:`r^+(p)` its smooth rank among the positives (see `soft_ranks`), the
    mean over the anchors with a positive (0 without any) of

    .. math:: 1 - \frac{1}{|P|} \sum_{p \in P} \frac{r^+(p)}{r(p)}

    Args:
        temperature: cosine over which a rank changes by one, positive.
            Default 0.01.

    Example:
        ```python
        value = gsp.losses.SmoothAPLoss()([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Brown et al., "Smooth-AP", ECCV 2020, equations (6) and (7). Its code
        needs classes of equal size in consecutive rows; this class does not.
        As in it, the anchor counts as one of its positives.
    """

    counts_query = True

    def __init__(self, temperature: float = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def list_terms(
        self, similarities: Tensor, positive: Tensor, counted: Tensor
    ) -> Tensor:
        is_positive = positive > 0.0
        ranks = soft_ranks(similarities, counted, is_positive, self.temperature)
        ranks_among_positives = soft_ranks(
            similarities, is_positive, is_positive, self.temperature
        )
        precisions = ranks_among_positives / ops.where(is_positive, ranks, 1.0)
        count = ops.sum(positive, axis=1)
        total = ops.sum(positive * precisions, axis=1)
        return 1.0 - total / ops.where(count > 0.0, count, 1.0)


class RecallAtKLoss(ListLoss):
    r"""Smooth recall at k of each anchor's ranking.

    With r(p) the smooth rank of a positive (see `soft_ranks`), the mean over
    the anchors with a positive (0 without any) of

    .. math:: 1 - \frac{1}{|K|} \sum_{k \in K} \frac{1}{\min(k, |P|)}
        \min\Big(k, \sum_{p \in P}
        \sigma(k - r(p))\Big)

    A positive exactly at rank k counts half, so even a perfect ranking has a
    loss above 0.

    Args:
        k: integers of at least 1. Default (1, 2, 4, 8, 16).
        temperature: cosine over which a rank changes by one, positive.
            Default 0.01.

    Example:
        ```python
        value = gsp.losses.RecallAtKLoss(k=(1, 2))([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Patel et al., "Recall@k Surrogate Loss", CVPR 2022, equations (5) to
        (7), with both bounds by k of its code. That code keeps the query in
        the list, which adds one to every rank; this class does not.
    """

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16),
        *,
        temperature: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        if isinstance(k, int) or not len(k):
            raise ValueError(
                f"`k` must hold at least one integer. Received: k={k!r}."
            )
        for depth in k:
            check_count(k=depth)
        self.k = list(k)
        self.temperature = temperature

    def list_terms(
        self, similarities: Tensor, positive: Tensor, counted: Tensor
    ) -> Tensor:
        ranks = soft_ranks(
            similarities, counted, positive > 0.0, self.temperature
        )
        count = ops.sum(positive, axis=1)
        total = 0.0
        for k in self.k:
            within = ops.sigmoid(k - ranks)
            hits = ops.sum(positive * within, axis=1)
            possible = smaller(ops.where(count > 0.0, count, 1.0), k)
            total += smaller(hits, k) / possible
        return 1.0 - total / len(self.k)
