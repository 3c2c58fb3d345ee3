"""Losses on pairs and proxies, and the regularisers."""

from keras_gsp.losses.contrastive import ContrastiveLoss
from keras_gsp.losses.cross_batch import CrossBatchLoss
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.losses.zero_shot import ZeroShotLoss

__all__ = [
    "ContrastiveLoss",
    "CrossBatchLoss",
    "PairLoss",
    "ZeroShotLoss",
]
