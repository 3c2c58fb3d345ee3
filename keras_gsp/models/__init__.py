"""Encoders, and the model that trains them."""

from keras_gsp.models.backbones.bn_inception import bn_inception
from keras_gsp.models.backbones.bn_inception_weights import (
    load_bn_inception_weights,
)
from keras_gsp.models.backbones.resnet20 import resnet20
from keras_gsp.models.encoder import build_encoder
from keras_gsp.models.metric_learner import MetricLearner
from keras_gsp.models.proxy_optimizer import proxy_optimizer

__all__ = [
    "MetricLearner",
    "bn_inception",
    "build_encoder",
    "load_bn_inception_weights",
    "proxy_optimizer",
    "resnet20",
]
