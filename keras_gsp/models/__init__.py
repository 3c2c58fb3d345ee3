"""Encoders, and the model that trains them."""

from keras_gsp.embeddings.labeled_batches import embedding_of
from keras_gsp.models.backbones.bn_inception import bn_inception
from keras_gsp.models.backbones.bn_inception_weights import (
    bn_inception_state,
    load_bn_inception_weights,
)
from keras_gsp.models.backbones.resnet20 import resnet20
from keras_gsp.models.encoder import build_encoder, histogram_of
from keras_gsp.models.metric_learner import MetricLearner
from keras_gsp.models.proxy_optimizer import proxy_optimizer

__all__ = [
    "MetricLearner",
    "bn_inception",
    "bn_inception_state",
    "build_encoder",
    "embedding_of",
    "histogram_of",
    "load_bn_inception_weights",
    "proxy_optimizer",
    "resnet20",
]
