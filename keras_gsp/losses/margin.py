"""Margin loss with a fixed or learned boundary."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_not_negative, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import StepParts
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import anchor_shares


@keras.saving.register_keras_serializable(package="keras_gsp")
class MarginLoss(PairLoss):
    r"""Separates positives from negatives by a distance boundary.

    With d the Euclidean distance (not squared) of normalized embeddings, over
    the triplets of an anchor, a positive and a negative:

    .. math:: \frac{\sum [d_{ap} - \beta + m]_+ + [\beta - d_{an} + m]_+}
        {\text{number of hinges above 0}}

    With a miner the sum is over the pairs it keeps: `"distance_weighted"`, the
    paper's, draws a negative for each positive. Without positive or without
    negative pairs the loss is 0.

    Args:
        margin: distance, at least 0 (alpha in the paper). Default 0.2.
        beta: distance of the boundary, positive. Default 1.2.
        learn_beta: whether the boundary is learned, by the layer in
            `MetricLearner(loss_layer=LearnedBoundary())`, one for all classes
            or one per class. `beta` is then not used; outside training, where
            the classes differ, the mean of the boundaries is used. Default
            False.

    Raises:
        RuntimeError: `learn_beta` in a call without the layer.

    Example:
        ```python
        import numpy as np
        import keras_gsp as gsp

        loss = gsp.losses.MarginLoss(miner="distance_weighted", seed=0)
        value = loss(np.array([0, 0, 1, 1]), np.eye(4, 3))
        ```

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017,
        equations (3) and (5).
    """

    def __init__(
        self,
        margin: float = 0.2,
        beta: float = 1.2,
        *,
        learn_beta: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        check_positive(beta=beta)
        self.margin = margin
        self.beta = beta
        self.learn_beta = learn_beta
        self.needs = ("loss_layer",) if learn_beta else ()

    def step_options(
        self, parts: StepParts, is_training: bool = True
    ) -> dict[str, Any]:
        """Returns each anchor's boundary if learned; one outside training."""
        if not self.learn_beta:
            return {}
        layer = parts.loss_layer
        if not is_training:
            return {"boundary": layer.mean_boundary()}
        return {"boundary": layer(parts.labels)[:, None]}

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
        boundary: float | Tensor | None = None,
    ) -> Tensor:
        """Returns each anchor's sum of hinges, divided by their number."""
        if boundary is None and self.learn_beta:
            raise RuntimeError(
                "`learn_beta=True` needs the layer that holds the boundary: "
                "train with `MetricLearner(encoder, "
                "loss_layer=LearnedBoundary())`. Received: a call without it."
            )
        boundary = self.beta if boundary is None else boundary
        distances = pairwise_distances(embeddings, references)
        beta = ops.convert_to_tensor(boundary, distances.dtype)
        too_far = ops.relu(distances - beta + self.margin)
        too_near = ops.relu(beta - distances + self.margin)
        if self.miner is None:
            # A pair is in as many triplets as it has pairs of the other kind.
            positive, negative = (
                positive * ops.sum(negative, axis=1, keepdims=True),
                negative * ops.sum(positive, axis=1, keepdims=True),
            )
        active = positive * ops.cast(too_far > 0.0, distances.dtype)
        active += negative * ops.cast(too_near > 0.0, distances.dtype)
        sums = ops.sum(positive * too_far + negative * too_near, axis=1)
        return anchor_shares(sums, ops.sum(active))
