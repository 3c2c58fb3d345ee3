"""Losses on pairs, lists and proxies, and the regularizers."""

from keras_gsp.losses.contrastive import ContrastiveLoss, CosineContrastiveLoss
from keras_gsp.losses.cross_batch import CrossBatchLoss
from keras_gsp.losses.hinges import MarginLoss, TripletLoss
from keras_gsp.losses.list_wise import RecallAtKLoss, SmoothAPLoss
from keras_gsp.losses.matryoshka import MatryoshkaLoss
from keras_gsp.losses.pair_weighting import (
    CircleLoss,
    MultiSimilarityLoss,
    NTXentLoss,
    SupConLoss,
)
from keras_gsp.losses.proxy_anchor import ProxyAnchorLoss
from keras_gsp.losses.proxy_softmax import (
    ArcFaceLoss,
    CenterRegularizer,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)
from keras_gsp.losses.zero_shot import ZeroShotLoss

__all__ = [
    "ArcFaceLoss",
    "CenterRegularizer",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CosineContrastiveLoss",
    "CrossBatchLoss",
    "MarginLoss",
    "MatryoshkaLoss",
    "MultiSimilarityLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "RecallAtKLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SupConLoss",
    "TripletLoss",
    "ZeroShotLoss",
]
