"""Losses on pairs and proxies, and the regularisers."""

from keras_gsp.losses.contrastive import ContrastiveLoss
from keras_gsp.losses.cosine_contrastive import CosineContrastiveLoss
from keras_gsp.losses.cross_batch import CrossBatchLoss
from keras_gsp.losses.metric_loss import MetricLoss, References, StepParts
from keras_gsp.losses.multi_similarity import MultiSimilarityLoss
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.losses.proxy_anchor import ProxyAnchorLoss
from keras_gsp.losses.proxy_nca import ProxyNCALoss
from keras_gsp.losses.proxy_similarity import ProxyLoss
from keras_gsp.losses.soft_triple import SoftTripleLoss
from keras_gsp.losses.triplet import TripletLoss
from keras_gsp.losses.zero_shot import ZeroShotLoss

__all__ = [
    "ContrastiveLoss",
    "CosineContrastiveLoss",
    "CrossBatchLoss",
    "MetricLoss",
    "MultiSimilarityLoss",
    "PairLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "References",
    "SoftTripleLoss",
    "StepParts",
    "TripletLoss",
    "ZeroShotLoss",
]
