"""The words of losses and poolings, and the classes that they stand for."""

from typing import Any

PAIR_LOSSES = {
    "c1": "CosineContrastiveLoss",
    "c2": "ContrastiveLoss",
    "circle": "CircleLoss",
    "margin": "MarginLoss",
    "ms": "MultiSimilarityLoss",
    "ntxent": "NTXentLoss",
    "recall-at-k": "RecallAtKLoss",
    "smooth-ap": "SmoothAPLoss",
    "supcon": "SupConLoss",
    "triplet": "TripletLoss",
}
PROXY_LOSSES = {
    "arcface": "ArcFaceLoss",
    "cosface": "CosFaceLoss",
    "normalized-softmax": "NormalizedSoftmaxLoss",
    "proxy-anchor": "ProxyAnchorLoss",
    "proxy-nca": "ProxyNCALoss",
    "soft-triple": "SoftTripleLoss",
}
LOSSES = dict(sorted((PAIR_LOSSES | PROXY_LOSSES).items()))
# Word -> class and the arguments that differ from its defaults. Numbers of
# vectors are those of the GSP paper's comparison: 8 that make up the width of
# the embedding together, or 64 that have this width each.
FEW, MANY = 8, 64
GSP = "GeneralizedSumPooling"
POOLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    # The values are the encoder's projection.
    "attention": ("AttentionPooling", {"use_value_projection": False}),
    "cbam": ("CBAMPooling", {"kernel_size": 3}),
    "crow": ("CroWPooling", {}),
    "delf": ("DELFPooling", {}),
    "efficient-probing": ("EfficientProbingPooling", {}),
    "gap": ("GlobalAveragePooling2D", {}),
    "gap-gmp": ("AverageMaxPooling", {}),
    "gem": ("GeneralizedMeanPooling", {"learn_power": True}),
    "gem-gsp": (GSP, {"power": 3.0, "learn_power": True}),
    "gemax": ("GeneralizedMaxPooling", {}),
    "gmp": ("GlobalMaxPooling2D", {}),
    "gmp-gsp": (GSP, {"add_max": True}),
    "gsop": ("GSoPPooling", {}),
    "gsp": (GSP, {}),
    "gsp-affine": (GSP, {"use_affine_costs": True}),
    "netvlad": ("NetVLADPooling", {"num_clusters": FEW}),
    "netvlad-large": ("NetVLADPooling", {"num_clusters": MANY}),
    "ot-aggregation": ("OptimalTransportPooling", {"num_clusters": FEW}),
    "otk": ("OTKPooling", {"num_references": FEW}),
    "otk-large": ("OTKPooling", {"num_references": MANY}),
    "sim-pool": ("SimPooling", {"power": 2.0}),
    "smk": ("SmoothedMatchKernelPooling", {}),
    "solar": ("SOLARPooling", {}),
    "weldon": ("WELDONPooling", {}),
}
# Vectors of these make up the width of the embedding together.
DIVIDED = ("netvlad", "ot-aggregation", "otk")


def is_proxy_loss(word: str) -> bool:
    """Whether a loss compares samples with proxies only."""
    return word in PROXY_LOSSES


def is_gsp(word: str) -> bool:
    """Whether a pooling has prototypes whose histogram regularizers take."""
    return POOLINGS[word][0] == GSP


def make_loss(word: str, **arguments: Any) -> Any:
    """Returns the loss of a word; its class checks the arguments."""
    from keras_gsp import losses as package

    return made(getattr(package, LOSSES[word]), arguments)


def make_pooling(word: str, **arguments: Any) -> Any:
    """Returns the pooling layer of a word; its class checks the arguments."""
    import keras

    from keras_gsp import layers as package

    name, own = POOLINGS[word]
    kind = getattr(package, name, None) or getattr(keras.layers, name)
    return made(kind, own | arguments)


def made(class_: Any, arguments: dict[str, Any]) -> Any:
    """Returns an instance; an unknown argument is a `ValueError`."""
    try:
        return class_(**arguments)
    except TypeError as error:
        raise ValueError(f"{class_.__name__}: {error}") from error
