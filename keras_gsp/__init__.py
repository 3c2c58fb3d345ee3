"""Deep metric learning for Keras 3: image retrieval on unseen classes."""

import os as _os

try:
    import keras as _keras  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("tensorflow", "jax", "torch"):
        raise
    raise ModuleNotFoundError(
        f"Keras is set to the backend {error.name!r}, which is not installed. "
        'Install one: pip install "keras-gsp[tf-cpu]" (TensorFlow without a '
        'GPU), "keras-gsp[tf]", or "keras-gsp[jax]" or "keras-gsp[torch]" '
        "and set KERAS_BACKEND=jax or torch. "
        f"Received: KERAS_BACKEND={_os.environ.get('KERAS_BACKEND')!r}.",
        name=error.name,
    ) from error

from keras_gsp import (
    callbacks,
    data,
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
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "retrieval",
]
