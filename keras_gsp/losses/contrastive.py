"""Contrastive loss on distances."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import anchor_shares
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class ContrastiveLoss(PairLoss):
    """Contrastive loss on Euclidean distances (C2).

    With `d` the Euclidean distance (not squared) of normalized embeddings,
    over ordered pairs of two different embeddings:

    `sum_positive (d - positive_margin)_+ / #{positive pairs above 0}
    + sum_negative (negative_margin - d)_+ / #{negative pairs above 0}`

    Each sum is averaged over its own active pairs of all anchors. A batch
    without positive pairs gives the negative part alone, one without any
    active pair gives 0. Two equal embeddings have distance 0 and no gradient.

    Args:
        positive_margin: distance, at least 0, below which positives cost
            nothing. Default 0.
        negative_margin: distance, at least 0, above which negatives cost
            nothing. Default 0.5.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    model.compile("adam", loss=gsp.losses.ContrastiveLoss())
    images = np.random.default_rng(0).normal(size=(12, 8))
    model.fit(images, np.arange(12) % 3, verbose=0)
    ```

    Reference:
        "C2" of Gürbüz et al., "Generalized Sum Pooling for Metric Learning",
        ICCV 2023. Equation (2.1.1) of the thesis adds a hinge
        `(d - negative_margin)_+` to positive pairs, a misprint; its code, and
        this class, does not. The code divides by the count + 1e-16, this
        class by the count, or by 1 when it is 0.
    """

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(
            positive_margin=positive_margin, negative_margin=negative_margin
        )
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns both active means, split over the anchors."""
        distances = pairwise_distances(embeddings, references)
        too_far = ops.relu(distances - self.positive_margin)
        too_near = ops.relu(self.negative_margin - distances)
        return _active_mean(too_far, positive) + _active_mean(
            too_near, negative
        )


def _active_mean(hinges, weights):
    active = ops.sum(weights * ops.cast(hinges > 0.0, hinges.dtype))
    return anchor_shares(ops.sum(weights * hinges, axis=1), active)
