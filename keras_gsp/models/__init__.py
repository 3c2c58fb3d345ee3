"""Encoders, and the model that trains them."""

from keras_gsp.models.backbones.bn_inception import (
    bn_inception,
    load_bn_inception_weights,
)
from keras_gsp.models.encoder import build_encoder, truncate_encoder
from keras_gsp.models.lora import merge_lora
from keras_gsp.models.metric_learner import MetricLearner
from keras_gsp.models.multi_view import MultiView
from keras_gsp.models.projection_initialization import initialize_projection
from keras_gsp.models.two_looks import TwoLooks

__all__ = [
    "MetricLearner",
    "MultiView",
    "TwoLooks",
    "bn_inception",
    "build_encoder",
    "load_bn_inception_weights",
    "merge_lora",
    "initialize_projection",
    "truncate_encoder",
]
