"""Keras layers: poolings, proxies, class embeddings, memory."""

from keras_gsp.layers.center_regularizer import CenterRegularizer
from keras_gsp.layers.class_embeddings import ClassEmbeddings
from keras_gsp.layers.class_proxies import ClassProxies
from keras_gsp.layers.embedding_memory import EmbeddingMemory
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.layers.learnt_boundary import LearntBoundary
from keras_gsp.layers.pooling.generalized_mean_pooling import (
    GeneralizedMeanPooling,
)
from keras_gsp.layers.pooling.generalized_sum_pooling import (
    GeneralizedSumPooling,
)
from keras_gsp.layers.prototype_histogram import PrototypeHistogram

__all__ = [
    "CenterRegularizer",
    "ClassEmbeddings",
    "ClassProxies",
    "EmbeddingMemory",
    "EmbeddingNormalization",
    "GeneralizedMeanPooling",
    "GeneralizedSumPooling",
    "LearntBoundary",
    "PrototypeHistogram",
]
