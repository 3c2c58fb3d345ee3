"""Contrastive loss on cosines."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.pairs import shares_of_mean_anchor
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor

# A positive pair this close to cosine 1 is one image twice, up to rounding.
_IDENTICAL = 1e-5


@keras.saving.register_keras_serializable(package="keras_gsp")
class CosineContrastiveLoss(PairLoss):
    """Contrastive loss on cosines (C1), used with embedding memories.

    With `s` the inner product of normalized embeddings, over ordered pairs of
    two different embeddings:

    `(sum_positive (1 - 1e-5 - s)_+ + sum_negative (s - margin)_+) / anchors`

    The sums are divided by the number of anchors, not of pairs: the loss
    grows with the batch or the memory. Without positive pairs the negative
    part remains, without any pair it is 0.

    Args:
        margin: cosine, at least 0, below which negatives cost nothing.
            Default 0.5.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.CosineContrastiveLoss(margin=0.5)
    embeddings = np.eye(4, 3, dtype="float32")
    value = loss(np.array([0, 0, 1, 1]), embeddings)
    ```

    Reference:
        "C1" of Gürbüz et al., ICCV 2023, after Wang et al., "Cross-Batch
        Memory for Embedding Learning", CVPR 2020 (not Hadsell et al. 2006,
        whose hinge is squared). The value is that of the former's code. The
        latter's code sums `s` where this class sums `s - margin`: the same
        gradient, a value that jumps at the margin. Both use the 1e-5 to
        recognize an embedding's pair with itself; here that pair is removed
        by its index, and the 1e-5 only absorbs rounding.
    """

    def __init__(self, margin: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        self.margin = margin

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns each anchor's sum of hinges."""
        cosines = full_matmul(embeddings, ops.transpose(references))
        hinges = positive * ops.relu(
            1.0 - _IDENTICAL - cosines
        ) + negative * ops.relu(cosines - self.margin)
        return shares_of_mean_anchor(
            ops.sum(hinges, axis=1), positive, negative
        )
