"""Losses on pairs, lists and proxies, and the regularizers."""

from keras_gsp.losses.arcface import ArcFaceLoss
from keras_gsp.losses.center_regularizer import CenterRegularizer
from keras_gsp.losses.circle import CircleLoss
from keras_gsp.losses.contrastive import ContrastiveLoss
from keras_gsp.losses.cosface import CosFaceLoss
from keras_gsp.losses.cosine_contrastive import CosineContrastiveLoss
from keras_gsp.losses.cross_batch import CrossBatchLoss
from keras_gsp.losses.intra_batch import IntraBatchLoss
from keras_gsp.losses.lifted_structure import LiftedStructureLoss
from keras_gsp.losses.list_wise import ListLoss
from keras_gsp.losses.margin import MarginLoss
from keras_gsp.losses.matryoshka import Matryoshka
from keras_gsp.losses.metric_loss import MetricLoss
from keras_gsp.losses.multi_similarity import MultiSimilarityLoss
from keras_gsp.losses.n_pair import NPairLoss
from keras_gsp.losses.normalized_softmax import NormalizedSoftmaxLoss
from keras_gsp.losses.ntxent import NTXentLoss
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.losses.potential_field import PotentialFieldLoss
from keras_gsp.losses.proxy_anchor import ProxyAnchorLoss
from keras_gsp.losses.proxy_nca import ProxyNCALoss
from keras_gsp.losses.proxy_similarity import ProxyLoss
from keras_gsp.losses.recall_at_k import RecallAtKLoss
from keras_gsp.losses.smooth_ap import SmoothAPLoss
from keras_gsp.losses.soft_triple import SoftTripleLoss
from keras_gsp.losses.supervised_contrastive import SupConLoss
from keras_gsp.losses.triplet import TripletLoss
from keras_gsp.losses.zero_shot import ZeroShotLoss

__all__ = [
    "ArcFaceLoss",
    "CenterRegularizer",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CosineContrastiveLoss",
    "CrossBatchLoss",
    "IntraBatchLoss",
    "LiftedStructureLoss",
    "ListLoss",
    "MarginLoss",
    "Matryoshka",
    "MetricLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "PairLoss",
    "PotentialFieldLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "RecallAtKLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SupConLoss",
    "TripletLoss",
    "ZeroShotLoss",
]
