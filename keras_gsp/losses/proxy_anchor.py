"""Proxy-anchor loss: each proxy against the samples of the batch."""

from typing import Any

from keras import ops

from keras_gsp._checks import check_not_negative, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.proxy_similarity import (
    ProxyLoss,
    is_own_class,
    own_similarities,
)
from keras_gsp.ops.labels import same_class
from keras_gsp.ops.pairs import anchor_shares, log_one_plus_sum_exp
from keras_gsp.ops.precision import larger


class ProxyAnchorLoss(ProxyLoss):
    r"""Compares each proxy with the samples, the hardest weighted most.

    With `s` the cosine of embedding and proxy, P all proxies, P+ those whose
    class is in the batch, the inner sums over the samples of the batch:

    .. math::
        \frac{1}{|P^+|} \sum_{P^+} \log \bigl( 1 + \sum_{own}
        e^{-\alpha (s - m)} \bigr) + \frac{1}{|P|} \sum_P \log \bigl( 1
        + \sum_{other} e^{\alpha (s + m)} \bigr)

    Each proxy of a class counts separately. A sample's term, which a sample
    weight multiplies, is an equal share of the first logarithm of its class and
    of all second logarithms.

    Args:
        margin: cosine, at least 0 (delta in the paper). Default 0.1.
        alpha: sharpness, positive. Default 32.

    Example:
        ```python
        proxies = gsp.layers.ClassProxies(num_classes=3)
        value = gsp.losses.ProxyAnchorLoss()([0, 1, 2], proxies(np.eye(3, 8)))
        ```

    Reference:
        Kim et al., "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020,
        equation (4). The GSP papers' code divides the second sum by the
        number of proxies that have a sample of another class; this differs
        from `|P|` only in a batch of a single class.
    """

    def __init__(
        self, margin: float = 0.1, alpha: float = 32.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        check_positive(alpha=alpha)
        self.margin = margin
        self.alpha = alpha

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        everything = ops.ones(ops.shape(labels), dtype="bool")
        return self.inside_terms(labels, similarities, everything)

    def inside_terms(
        self, labels: Tensor, similarities: Tensor, is_inside: Tensor
    ) -> Tensor:
        is_other = ops.logical_not(is_own_class(labels, similarities))
        repulsion = log_one_plus_sum_exp(
            self.alpha * (similarities + self.margin),
            (is_other & is_inside[:, None])[:, :, None],
            axis=0,
        )
        num_proxies = repulsion.shape[0] * repulsion.shape[1]
        repulsion = ops.sum(repulsion) / num_proxies
        return self._attraction(labels, similarities, is_inside) + repulsion

    def _attraction(self, labels, similarities, is_inside):
        """The first mean, in batch^2 terms instead of batch * num_classes.

        Every sample computes the logarithms of its class and takes a share of
        one over the number of samples of the class.
        """
        own = own_similarities(labels, similarities)
        is_same = same_class(labels, labels) & is_inside[None, :]
        logs = log_one_plus_sum_exp(
            -self.alpha * (own[None, :, :] - self.margin),
            is_same[:, :, None],
            axis=1,
        )
        num_same = ops.sum(ops.cast(is_same, own.dtype), axis=1)
        share = ops.cast(is_inside, own.dtype) / larger(num_same, 1.0)
        sums = ops.sum(logs, axis=1) * share
        return anchor_shares(sums, ops.sum(share) * logs.shape[1])
