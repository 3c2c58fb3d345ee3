"""Deep metric learning for Keras 3: image retrieval on unseen classes."""

from keras_gsp import (
    callbacks,
    data,
    embeddings,
    layers,
    losses,
    metrics,
    models,
    ops,
    retrieval,
)

__version__ = "0.1.0"

__all__ = [
    "callbacks",
    "data",
    "embeddings",
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "retrieval",
]
