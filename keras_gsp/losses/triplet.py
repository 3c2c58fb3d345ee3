"""Triplet loss over all valid triplets, in memory of the order of batch^2."""

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import anchor_shares

MEANS = ("active", "valid")


@keras.saving.register_keras_serializable(package="keras_gsp")
class TripletLoss(PairLoss):
    """Wants each positive nearer than each negative, by a margin.

    With `d` the Euclidean distance (not squared) of normalised embeddings,
    over all triplets of an anchor, a positive and a negative:

    `sum (d_positive - d_negative + margin)_+ / #{triplets above 0}`

    The mean is over the active triplets of all anchors together, or with
    `mean_over="valid"` over all valid triplets. Without positive pairs, or
    without negative ones, there is no triplet and the loss is 0.

    No tensor has more than `batch * references` entries: see
    `active_partners`.

    Args:
        margin: distance, at least 0. Default 0.05.
        mean_over: `"active"` or `"valid"`. Default `"active"`.
        **kwargs: `normalization` (default `"l2"`; the margin is meant
            for it, where distances lie in [0, 2]),
            `reduction`, `name` and `dtype`; see `PairLoss`.

    Raises:
        ValueError: a negative margin, an unknown `mean_over` or
            `normalization`.

    Example:

    ```python
    loss = gsp.losses.TripletLoss(margin=0.05)
    embeddings = np.eye(4, 3, dtype="float32")
    value = loss(np.array([0, 0, 1, 1]), embeddings)
    ```

    Reference:
        Schroff et al., "FaceNet", CVPR 2015, equation (3), in the form of
        Gürbüz et al., ICCV 2023: distances are not squared and every active
        triplet counts, where FaceNet squares and mines semi-hard negatives.
    """

    def __init__(
        self,
        margin=0.05,
        *,
        mean_over="active",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        if mean_over not in MEANS:
            raise ValueError(
                '`mean_over` must be "active" or "valid". '
                f"Received: mean_over={mean_over!r}."
            )
        self.margin = margin
        self.mean_over = mean_over

    def anchor_terms(self, embeddings, references, is_positive, is_negative):
        """Returns each anchor's sum of hinges, divided by the count.

        An active hinge is linear in its two distances. So the sum of an
        anchor's hinges is `sum_j partners_j d_j + margin * active`, where
        `partners_j` counts the active triplets that pair `j` is the positive
        of, less those it is the negative of. Value and gradient both follow
        from these counts, which themselves have no gradient.
        """
        distances = pairwise_distances(embeddings, references)
        fixed = ops.stop_gradient(distances)
        partners, active = active_partners(
            fixed, is_positive, is_negative, self.margin
        )
        # The counts of an anchor sum to 0: any shift of its distances is
        # harmless, and this one keeps the digits that the sum would cancel.
        shift = ops.mean(fixed, axis=1, keepdims=True)
        sums = ops.sum(partners * (distances - shift), axis=1)
        count = active
        if self.mean_over == "valid":
            positives = ops.sum(ops.cast(is_positive, fixed.dtype), axis=1)
            negatives = ops.sum(ops.cast(is_negative, fixed.dtype), axis=1)
            count = positives * negatives
        return anchor_shares(sums + self.margin * active, ops.sum(count))

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "margin": self.margin,
            "mean_over": self.mean_over,
        }


def active_partners(distances, is_positive, is_negative, margin):
    """Counts, for every pair, the active triplets it takes part in.

    One round takes the next positive of every anchor at once and compares it
    with all the anchor's negatives: as many rounds as the largest class has
    positives, each of `batch * references` comparisons. A batch of 4 samples
    a class needs 3 rounds, where a table of triplets would have `batch^3`
    entries.

    Args:
        distances: (batch, references).
        is_positive: boolean (batch, references).
        is_negative: boolean (batch, references).
        margin: distance, at least 0.

    Returns:
        The signed counts (batch, references), positive where the pair is the
        positive of its triplets, and the number of active triplets of each
        anchor (batch,), both in the dtype of `distances`.
    """
    columns = ops.arange(ops.shape(distances)[1])[None, :]
    has_negative = ops.any(is_negative, axis=1, keepdims=True)

    def positives_are_left(waiting, partners):
        del partners
        return ops.any(waiting)

    def one_positive(waiting, partners):
        column = ops.argmax(waiting, axis=1, keepdims=True)
        is_chosen = ops.logical_and(columns == column, waiting)
        nearest = ops.sum(
            ops.where(is_chosen, distances, 0.0), axis=1, keepdims=True
        )
        is_active = ops.logical_and(is_negative, distances < nearest + margin)
        is_active = ops.logical_and(
            is_active, ops.any(is_chosen, axis=1, keepdims=True)
        )
        losing = ops.cast(is_active, distances.dtype)
        gaining = ops.cast(is_chosen, distances.dtype) * ops.sum(
            losing, axis=1, keepdims=True
        )
        waiting = ops.logical_and(waiting, ops.logical_not(is_chosen))
        return waiting, partners + gaining - losing

    _, partners = ops.while_loop(
        positives_are_left,
        one_positive,
        (
            ops.logical_and(is_positive, has_negative),
            ops.zeros_like(distances),
        ),
    )
    partners = ops.stop_gradient(partners)
    return partners, ops.sum(ops.relu(partners), axis=1)
