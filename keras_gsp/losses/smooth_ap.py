"""Smooth-AP loss."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.list_wise import ListLoss
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.soft_ranks import soft_ranks
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class SmoothAPLoss(ListLoss):
    r"""Average precision of each anchor's ranking, with smooth ranks.

    With r(p) the smooth rank of a positive among all references and
    :math:`r^+(p)` its smooth rank among the positives (see `soft_ranks`):

    .. math:: 1 - \frac{1}{|P|} \sum_{p \in P} \frac{r^+(p)}{r(p)},

    averaged over the anchors that have a positive; without any the loss is 0.

    Args:
        temperature: cosine over which a rank changes by one, positive.
            Default 0.01.
        counts_query: whether the anchor itself counts as one of its
            positives, the most similar one. Default True, as in the paper's
            code; False is average precision as retrieval scores have it.
        **kwargs: those of `ListLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.SmoothAPLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image
        Retrieval", ECCV 2020, equations (6) and (7). Its code needs
        classes of equal size in consecutive rows; this class does not.
    """

    def __init__(
        self,
        temperature: float = 0.01,
        *,
        counts_query: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(counts_query=counts_query, **kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def list_terms(
        self, similarities: Tensor, positive: Tensor, counted: Tensor
    ) -> Tensor:
        """Returns one minus each anchor's smooth average precision."""
        is_positive = positive > 0.0
        ranks = soft_ranks(similarities, counted, is_positive, self.temperature)
        ranks_among_positives = soft_ranks(
            similarities, is_positive, is_positive, self.temperature
        )
        precisions = ranks_among_positives / ops.where(is_positive, ranks, 1.0)
        count = ops.sum(positive, axis=1)
        average = ops.sum(positive * precisions, axis=1) / ops.where(
            count > 0.0, count, 1.0
        )
        return 1.0 - average
