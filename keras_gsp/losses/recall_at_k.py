"""Recall@k loss."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_gsp.losses.list_wise import ListLoss
from keras_gsp.ops.arguments import check_count, check_positive
from keras_gsp.ops.precision import smaller
from keras_gsp.ops.soft_ranks import soft_ranks
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class RecallAtKLoss(ListLoss):
    r"""Smooth recall at k of each anchor's ranking.

    With r(p) the smooth rank of a positive (see `soft_ranks`):

    .. math:: 1 - \frac{1}{|K|} \sum_{k \in K} \frac{1}{\min(k, |P|)}
        \min\Big(k, \sum_{p \in P}
        \sigma\Big(\frac{k - r(p)}{T_\text{rank}}\Big)\Big),

    averaged over the anchors that have a positive; without any the loss is 0.
    A positive exactly at rank k counts half, so even a perfect ranking has a
    loss above 0.

    Args:
        k: integers of at least 1. Default (1, 2, 4, 8, 16).
        temperature: cosine over which a rank changes by one, positive.
            Default 0.01.
        rank_temperature: ranks over which the step at k is smoothed,
            positive. Default 1.
        **kwargs: those of `ListLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.RecallAtKLoss(k=(1, 2))
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Patel et al., "Recall@k Surrogate Loss with Large Batches and
        Similarity Mixup", CVPR 2022, equations (5) to (7), with both bounds
        by k of its code. That code keeps the query itself in the list, which
        adds one to every rank; `counts_query=True` does so here, and the
        query then counts as a positive too.
    """

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16),
        *,
        temperature: float = 0.01,
        rank_temperature: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(
            temperature=temperature, rank_temperature=rank_temperature
        )
        if isinstance(k, int) or not len(k):
            raise ValueError(
                f"`k` must hold at least one integer. Received: k={k!r}."
            )
        for depth in k:
            check_count(k=depth)
        self.k = list(k)
        self.temperature = temperature
        self.rank_temperature = rank_temperature

    def list_terms(
        self, similarities: Tensor, positive: Tensor, counted: Tensor
    ) -> Tensor:
        """Returns one minus each anchor's mean smooth recall."""
        ranks = soft_ranks(
            similarities, counted, positive > 0.0, self.temperature
        )
        count = ops.sum(positive, axis=1)
        total = 0.0
        for k in self.k:
            within = ops.sigmoid((k - ranks) / self.rank_temperature)
            hits = ops.sum(positive * within, axis=1)
            possible = smaller(ops.where(count > 0.0, count, 1.0), k)
            total += smaller(hits, k) / possible
        return 1.0 - total / len(self.k)
