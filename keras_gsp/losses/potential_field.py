"""Potential field loss."""

from dataclasses import replace
from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import StepParts
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.normalization import normalize
from keras_gsp.ops.pairs import pair_weights, shares_of_mean_anchor
from keras_gsp.ops.precision import larger

# Equal embeddings of unequal class would have an infinite potential.
_SMALLEST = 0.01


@keras.saving.register_keras_serializable(package="keras_gsp")
class PotentialFieldLoss(PairLoss):
    r"""Sums attractive and repulsive potentials that fade with distance.

    The potential of a reference at distance d of an anchor is

    .. math:: \psi_\text{att}(d) = -\frac{1}{\max(d, r)^{\alpha}}, \qquad
        \psi_\text{rep}(d) = \frac{1}{\min(d, r)^{\alpha}}

    for equal and unequal class, with r the `radius` and :math:`\alpha` the
    `decay`: far positives, often mislabeled, have little influence. The loss
    is the mean over the anchors of the sum over all references. With the
    proxies of a `MetricLearner`, every sample and proxy is an anchor and a
    reference, as in the paper, whatever `in_batch_weight` is. A batch without
    positive pairs gives the repulsion alone, one without any pair 0. Only
    changes are meaningful: every negative outside the radius adds the constant
    :math:`r^{-\alpha}`.

    Args:
        radius: distance, positive (delta in the paper, searched in
            [0.1, 0.3]). Default 0.2.
        decay: exponent, positive (alpha in the paper, searched up to 6).
            Default 4.

    Example:
        ```python
        import numpy as np
        import keras_gsp as gsp

        value = gsp.losses.PotentialFieldLoss()([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Bhatnagar and Ahuja, "Potential Field Based Deep Metric Learning",
        CVPR 2025, equations (1), (2) and (6), whose sum over anchors is a mean
        here, so as not to grow with the batch. That the repulsion is constant
        below a distance of 0.01 is ours.
    """

    def __init__(
        self, radius: float = 0.2, decay: float = 4.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(radius=radius, decay=decay)
        self.radius = radius
        self.decay = decay

    def training_loss(self, parts: StepParts) -> Tensor:
        """Returns the energy of samples and proxies, divided by the samples.

        A memory is added as in other pair losses.
        """
        if parts.proxies is None:
            return super().training_loss(parts)
        proxies, *others = parts.references
        loss = proxies.once_warm(
            lambda: self._joint_energy(parts, proxies),
            lambda: self.validation_loss(parts),
        )
        if others:
            rest = replace(parts, references=tuple(others), in_batch_weight=0.0)
            loss += super().training_loss(rest)
        return loss

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns the potential at each anchor."""
        distances = pairwise_distances(embeddings, references)
        outside = larger(distances, self.radius)
        inside = ops.clip(distances, min(_SMALLEST, self.radius), self.radius)
        repulsion = negative * inside**-self.decay
        potentials = repulsion - positive * outside**-self.decay
        sums = ops.sum(potentials, axis=1)
        return shares_of_mean_anchor(sums, positive, negative)

    def _joint_energy(self, parts, proxies):
        """The energy of every ordered pair of two different points."""
        charges = normalize(proxies.embeddings, self.normalization)
        positions = ops.arange(ops.shape(charges)[0])
        weights = pair_weights(
            proxies.labels, proxies.labels, ignore_class=self.ignore_class
        ).without(positions[:, None] == positions[None, :])
        own = ops.sum(self._terms(charges, charges, weights))
        within = self.validation_loss(parts)
        embeddings = self._known_embeddings(parts)
        between = self.between(
            parts.labels, embeddings, proxies.labels, proxies.embeddings
        )
        # Ignored samples do not count.
        pairs = self._pairs(
            parts.labels, proxies.labels, proxies.embeddings, self.ignore_class
        )
        has_pair = ops.any(pairs.positive + pairs.negative > 0.0, axis=1)
        count = ops.cast(ops.sum(ops.cast(has_pair, "int32")), own.dtype)
        return within + 2.0 * between + own / larger(count, 1.0)
