"""Matryoshka loss: leading parts of an embedding are embeddings too."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras

from keras_gsp._checks import check_count
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import MetricLoss, StepParts
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.losses.proxy_similarity import ProxyLoss


class MatryoshkaLoss(MetricLoss):
    r"""Adds up a loss over leading parts of the embedding.

    .. math:: L = \sum_m \ell(y, \nu(x_{1:m}))

    with the sizes m and :math:`\nu` the normalization of the loss, so that an
    encoder can later be truncated by `gsp.models.truncate_encoder`. Proxies and
    memory are truncated alike: one set serves all sizes.

    Args:
        loss: a pair loss, list loss or proxy loss; the latter in
            `MetricLearner` alone, which gives it the proxies.
        sizes: decreasing sizes of the parts, each at least 1 and at most the
            embedding size. Coordinates beyond the first size are not trained:
            begin with the embedding size. Default `(128, 64, 32, 16)`.
        name: string.

    Raises:
        TypeError: another loss.
        ValueError: sizes that are not so.

    Example:

    ```python
    pair_loss = gsp.losses.ContrastiveLoss()
    loss = gsp.losses.MatryoshkaLoss(pair_loss, sizes=(8, 4, 2))
    value = loss(np.array([0, 0, 1, 1]), np.eye(4, 8))
    ```

    Reference:
        Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022,
        equation (1), with equal weights. Its classifiers with tied weights are
        truncated as proxies are here (MRL-E).
    """

    def __init__(
        self,
        loss: PairLoss | ProxyLoss,
        sizes: Sequence[int] = (128, 64, 32, 16),
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not isinstance(loss, PairLoss | ProxyLoss):
            raise TypeError(
                "`loss` must be a pair loss, a list loss or a proxy loss of "
                f"`keras_gsp.losses`. Received: loss={loss!r}."
            )
        self.loss = loss
        self.sizes = tuple(sizes)
        for size in self.sizes:
            check_count(sizes=size)
        if not sizes or [*sizes] != sorted({*sizes}, reverse=True):
            raise ValueError(
                "`sizes` must decrease, for example (128, 64, 32, 16). "
                f"Received: sizes={sizes}."
            )
        self.needs, self.takes = loss.needs, loss.takes

    def __call__(
        self,
        labels: Tensor,
        embeddings: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch; arguments are those of `loss`."""
        if isinstance(self.loss, ProxyLoss):
            raise ValueError(
                "`loss` must be a pair loss outside `MetricLearner`: "
                "similarities to whole proxies have no parts. Received: "
                f"loss={self.loss!r}. Train with `MetricLearner(encoder, "
                "proxies=ClassProxies(num_classes))`."
            )
        embeddings = keras.ops.convert_to_tensor(embeddings)
        return self._sum(
            embeddings,
            lambda m: self.loss(labels, embeddings[:, :m], sample_weight),
        )

    def training_loss(self, parts: StepParts) -> Tensor:
        loss = self.loss.training_loss
        return self._sum(parts.embeddings, lambda m: loss(_truncated(parts, m)))

    def validation_loss(self, parts: StepParts) -> Tensor:
        loss = self.loss.validation_loss
        return self._sum(parts.embeddings, lambda m: loss(_truncated(parts, m)))

    def _sum(self, embeddings: Tensor, loss_of: Callable[[int], Tensor]) -> Any:
        if self.sizes[0] > embeddings.shape[-1]:
            raise ValueError(
                "`sizes` must be at most the embedding size, "
                f"{embeddings.shape[-1]}. Received: sizes={self.sizes}."
            )
        return sum(map(loss_of, self.sizes))


def _truncated(parts, size):
    """The parts of a step, with the first coordinates of all vectors."""
    proxies = parts.proxies
    return replace(
        parts,
        embeddings=parts.embeddings[:, :size],
        proxies=None if proxies is None else partial(proxies, size=size),
        references=tuple(
            replace(reference, embeddings=reference.embeddings[:, :size])
            for reference in parts.references
        ),
    )
