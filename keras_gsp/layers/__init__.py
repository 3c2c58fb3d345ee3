"""Keras layers: poolings, proxies, class embeddings, memory, whitening."""

from keras_gsp.layers.batch_message_passing import BatchMessagePassing
from keras_gsp.layers.class_embeddings import ClassEmbeddings
from keras_gsp.layers.class_proxies import ClassProxies
from keras_gsp.layers.embedding_memory import EmbeddingMemory
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.layers.expected_preprocessing import ExpectedPreprocessing
from keras_gsp.layers.intra_batch_classifier import IntraBatchClassifier
from keras_gsp.layers.learned_boundary import LearnedBoundary
from keras_gsp.layers.pooling.attention_pooling import AttentionPooling
from keras_gsp.layers.pooling.average_max_pooling import AverageMaxPooling
from keras_gsp.layers.pooling.cbam_pooling import CBAMPooling
from keras_gsp.layers.pooling.crow_pooling import CroWPooling
from keras_gsp.layers.pooling.delf_pooling import DELFPooling
from keras_gsp.layers.pooling.generalized_max_pooling import (
    GeneralizedMaxPooling,
)
from keras_gsp.layers.pooling.generalized_mean_pooling import (
    GeneralizedMeanPooling,
)
from keras_gsp.layers.pooling.generalized_sum_pooling import (
    GeneralizedSumPooling,
)
from keras_gsp.layers.pooling.gsop_pooling import GSoPPooling
from keras_gsp.layers.pooling.netvlad_pooling import NetVLADPooling
from keras_gsp.layers.pooling.optimal_transport_pooling import (
    OptimalTransportPooling,
)
from keras_gsp.layers.pooling.otk_pooling import OTKPooling
from keras_gsp.layers.pooling.sim_pooling import SimPooling
from keras_gsp.layers.pooling.smoothed_match_kernel_pooling import (
    SmoothedMatchKernelPooling,
)
from keras_gsp.layers.pooling.solar_pooling import SOLARPooling
from keras_gsp.layers.pooling.weldon_pooling import WELDONPooling
from keras_gsp.layers.prototype_histogram import PrototypeHistogram
from keras_gsp.layers.whitening import Whitening

__all__ = [
    "AttentionPooling",
    "AverageMaxPooling",
    "BatchMessagePassing",
    "CBAMPooling",
    "ClassEmbeddings",
    "ClassProxies",
    "CroWPooling",
    "DELFPooling",
    "EmbeddingMemory",
    "EmbeddingNormalization",
    "ExpectedPreprocessing",
    "GSoPPooling",
    "GeneralizedMaxPooling",
    "GeneralizedMeanPooling",
    "GeneralizedSumPooling",
    "IntraBatchClassifier",
    "LearnedBoundary",
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
