"""Keras layers: poolings, proxies, class embeddings, memory."""

from keras_gsp.layers.generalized_mean_pooling import GeneralizedMeanPooling
from keras_gsp.layers.generalized_sum_pooling import GeneralizedSumPooling

__all__ = [
    "GeneralizedMeanPooling",
    "GeneralizedSumPooling",
]
