"""Encoders, and the model that trains them."""

from keras_gsp.models.encoder import build_encoder, embedding_of, histogram_of
from keras_gsp.models.proxy_optimizer import proxy_optimizer
from keras_gsp.models.metric_learner import MetricLearner

__all__ = [
    "MetricLearner",
    "build_encoder",
    "embedding_of",
    "histogram_of",
    "proxy_optimizer",
]
