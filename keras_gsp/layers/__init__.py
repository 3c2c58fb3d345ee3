"""Keras layers: poolings, proxies, class embeddings, memory, whitening."""

from keras_gsp.layers.class_proxies import ClassEmbeddings, ClassProxies
from keras_gsp.layers.embedding_memory import EmbeddingMemory
from keras_gsp.layers.pooling.attention_poolings import (
    AttentionPooling,
    CBAMPooling,
    DELFPooling,
    EfficientProbingPooling,
    SimPooling,
)
from keras_gsp.layers.pooling.channel_poolings import (
    AverageMaxPooling,
    GeneralizedMeanPooling,
    WELDONPooling,
)
from keras_gsp.layers.pooling.cluster_poolings import (
    NetVLADPooling,
    OptimalTransportPooling,
    OTKPooling,
)
from keras_gsp.layers.pooling.generalized_max_pooling import (
    GeneralizedMaxPooling,
)
from keras_gsp.layers.pooling.generalized_sum_pooling import (
    GeneralizedSumPooling,
)
from keras_gsp.layers.pooling.response_poolings import (
    CroWPooling,
    SmoothedMatchKernelPooling,
)
from keras_gsp.layers.pooling.second_order_poolings import (
    GSoPPooling,
    SOLARPooling,
)
from keras_gsp.layers.prototype_histogram import PrototypeHistogram
from keras_gsp.layers.whitening import Whitening

__all__ = [
    "AttentionPooling",
    "AverageMaxPooling",
    "CBAMPooling",
    "ClassEmbeddings",
    "ClassProxies",
    "CroWPooling",
    "DELFPooling",
    "EfficientProbingPooling",
    "EmbeddingMemory",
    "GSoPPooling",
    "GeneralizedMaxPooling",
    "GeneralizedMeanPooling",
    "GeneralizedSumPooling",
    "NetVLADPooling",
    "OTKPooling",
    "OptimalTransportPooling",
    "PrototypeHistogram",
    "SOLARPooling",
    "SimPooling",
    "SmoothedMatchKernelPooling",
    "WELDONPooling",
    "Whitening",
]
