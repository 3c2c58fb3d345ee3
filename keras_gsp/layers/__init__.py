"""Keras layers: poolings, proxies, class embeddings, memory."""

from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.layers.generalized_mean_pooling import GeneralizedMeanPooling
from keras_gsp.layers.generalized_sum_pooling import GeneralizedSumPooling

__all__ = [
    "EmbeddingNormalization",
    "GeneralizedMeanPooling",
    "GeneralizedSumPooling",
]
