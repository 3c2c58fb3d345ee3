"""What layers refuse."""

from keras_gsp import layers
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from tests.refusals._rows import out_of_range

OUT_OF_RANGE = {
    "ClassEmbeddings": {"num_classes": [0], "embedding_size": [0]},
    "ClassProxies": {"num_classes": [0, 2.5], "proxies_per_class": [0, 2.5]},
    "EmbeddingMemory": {"capacity": [0], "warmup_steps": [-1]},
    "PrototypeHistogram": {
        "num_prototypes": [0],
        "inverse_temperature": [-1],
        "affinity": ["cosine"],
    },
    "Whitening": {"size": [0], "shrinkage": [1.5], "normalization": ["l"]},
    "AttentionPooling": {"num_queries": [0]},
    "CBAMPooling": {"reduction": [0], "kernel_size": [4]},
    "DELFPooling": {"hidden_size": [0]},
    "EfficientProbingPooling": {"projection_size": [0]},
    "GSoPPooling": {"attention_size": [0]},
    "GeneralizedMaxPooling": {"ridge": [0.0, float("inf")]},
    "GeneralizedMeanPooling": {"power": [0.9]},
    "GeneralizedSumPooling": {
        "num_prototypes": [2.5],
        "transport_ratio": [0.0, 1.5],
        "inverse_temperature": [0],
        "power": [0.5],
    },
    "NetVLADPooling": {"num_clusters": [0], "projection_size": [1.5]},
    "OTKPooling": {
        "num_references": [0],
        "num_iterations": [0],
        "inverse_temperature": [0],
    },
    "OptimalTransportPooling": {"num_clusters": [0]},
    "SOLARPooling": {"power": [0.5]},
    "SimPooling": {"power": [0.5]},
    "SmoothedMatchKernelPooling": {"kernel_size": [2]},
    "WELDONPooling": {"num_largest": [0], "num_smallest": [True]},
}
OTHERS = {
    "ClassEmbeddings": {"num_classes": 5, "embedding_size": 3},
    "ClassProxies": {"num_classes": 4},
    "EmbeddingMemory": {"capacity": 6},
    "Whitening": {"size": 3},
}
ROWS = [
    row
    for name, refused in OUT_OF_RANGE.items()
    for row in out_of_range(
        getattr(layers, name), refused, **OTHERS.get(name, {})
    )
]
ROWS += [
    *out_of_range(EmbeddingNormalization, {"normalization": ["l1"]}),
    (
        layers.GeneralizedMeanPooling,
        {"power": 1.0, "learn_power": True},
        "above 1 with learn_power=True",
    ),
    (
        layers.GeneralizedSumPooling,
        {"transport_ratio": 1.0, "learn_ratio": True},
        "below 1 with learn_ratio=True",
    ),
    (
        layers.EfficientProbingPooling,
        {"projection_size": 32, "use_value_projection": False},
        "`projection_size` must be None",
    ),
]
