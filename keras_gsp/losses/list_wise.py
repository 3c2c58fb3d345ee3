"""Base of the losses on an anchor's ranked list."""

from typing import Any

from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.pairs import shares_of_mean_over
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


class ListLoss(PairLoss):
    """Base of the losses on each anchor's whole ranking.

    A subclass defines one method, `list_terms`, from an anchor's similarities
    to all references to one number. Labels, `between`, proxies and memory
    work as in `PairLoss`. There is no miner: a ranking needs all references.
    The loss is the mean over the anchors that have a positive reference; a
    batch without any gives 0. A positive of weight w counts w times among the
    positives, and once in the ranks.

    Args:
        counts_query: whether the anchor is also in its own list, as its most
            similar positive. Default False.
        **kwargs: those of `PairLoss`; `miner` must stay `None`.
    """

    def __init__(
        self,
        *,
        counts_query: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.miner is not None:
            raise ValueError(
                "`miner` must be None: a ranking needs all references. "
                f"Received: miner={self.miner!r}."
            )
        self.counts_query = counts_query

    def list_terms(
        self, similarities: Tensor, positive: Tensor, counted: Tensor
    ) -> Tensor:
        """Returns the loss of each anchor's list; defined by each subclass.

        Args:
            similarities: (batch, references), inner products of normalized
                embeddings, float32 or float64.
            positive: (batch, references), how much each reference counts as
                a positive one; 0 where it is none.
            counted: (batch, references), 1 for each reference that is in the
                list, 0 for one that is left out.

        Returns:
            (batch,); the term of an anchor without positives is not used, but
            must be finite.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `list_terms`."
        )

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns terms whose mean is that over anchors with a positive."""
        similarities = full_matmul(embeddings, ops.transpose(references))
        counted = ops.cast(positive + negative > 0.0, similarities.dtype)
        has_positive = ops.any(positive > 0.0, axis=1)
        if self.counts_query:
            own = ops.sum(ops.square(embeddings), axis=1, keepdims=True)
            similarities = ops.concatenate([similarities, own], axis=1)
            itself = ops.ones_like(own)
            positive = ops.concatenate([positive, itself], axis=1)
            counted = ops.concatenate([counted, itself], axis=1)
        terms = self.list_terms(similarities, positive, counted)
        return shares_of_mean_over(terms, has_positive)
