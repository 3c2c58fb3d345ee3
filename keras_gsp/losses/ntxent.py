"""NT-Xent loss (InfoNCE): each positive pair against the negatives alone."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.pairs import anchor_shares, weighted_logsumexp


@keras.saving.register_keras_serializable(package="keras_gsp")
class NTXentLoss(PairLoss):
    r"""Picks each positive out of the anchor's negatives.

    With s the inner product of normalized embeddings, N(a) the negatives of
    anchor a, T the temperature:

    .. math:: -\log \frac{e^{s_{ap} / T}}
        {e^{s_{ap} / T} + \sum_{n \in N(a)} e^{s_{an} / T}}

    averaged over the positive pairs (a, p) of all anchors together. Two views
    of each image under one label make it the loss of SimCLR; text against
    images, with `between` and a boolean matrix, that of CLIP's one side. A
    batch without positive pairs, or without negative ones, gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.
        **kwargs: `normalization` (default `"l2"`), `label_kind`, `miner` and
            the others of `PairLoss`.

    Raises:
        ValueError: a `temperature` that is not positive.

    Example:

    ```python
    loss = gsp.losses.NTXentLoss()
    rng = np.random.default_rng(0)
    texts, images = rng.normal(size=(2, 6, 4))
    value = loss.between(np.eye(6, dtype=bool), texts, None, images)
    ```

    Reference:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual
        Representations", ICML 2020, equation (1); with more than one
        positive as in the cross-batch form of "InfoNCE": other positives do
        not stand in the denominator, which in `SupConLoss` they do.
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def anchor_terms(
        self, embeddings: Any, references: Any, positive: Any, negative: Any
    ) -> Any:
        """Returns each anchor's sum over its positives, over their number."""
        cosines = ops.matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        rivals = weighted_logsumexp(logits, negative)[:, None]
        sums = ops.sum(positive * ops.softplus(rivals - logits), axis=1)
        return anchor_shares(sums, ops.sum(positive))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "temperature": self.temperature}
