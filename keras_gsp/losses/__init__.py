"""Losses on pairs and proxies, and the regularisers."""

from keras_gsp.losses.contrastive import ContrastiveLoss
from keras_gsp.losses.pairwise import PairLoss

__all__ = ["ContrastiveLoss", "PairLoss"]
