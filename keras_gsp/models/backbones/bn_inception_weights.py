"""Loads BN-Inception's weights from the published PyTorch file."""

from pathlib import Path
from typing import Any

import keras
import numpy as np

_IGNORED = ("fc.", "last_linear.", "fc_action.")


def load_bn_inception_weights(model: keras.Model, state: Any) -> keras.Model:
    """Loads weights in PyTorch's layout into a `bn_inception`.

    Every convolution and batch normalization of the model must be there and
    fit; the classifier's weights are ignored.

    Args:
        model: a model that `keras_gsp.models.bn_inception` built.
        state: the state dict (name -> array or tensor), as
            `torch.load(file, weights_only=True)` gives it, or an `.npz` file
            of it, as `numpy.savez(file, **state)` writes it.

    Raises:
        ValueError: missing or unknown names, or other shapes.
        FileNotFoundError: no such file.

    Example:

    ```python
    from keras_gsp.models.backbones import bn_inception_weights

    backbone = gsp.models.bn_inception((32, 32, 3))
    state = bn_inception_weights.bn_inception_state(backbone)
    gsp.models.load_bn_inception_weights(backbone, state)
    ```
    """
    if isinstance(state, (str, Path)):
        with np.load(state, allow_pickle=False) as arrays:
            state = dict(arrays)
    state = {
        name: np.asarray(value)
        for name, value in state.items()
        if not name.startswith(_IGNORED)
        and not name.endswith("num_batches_tracked")
    }
    wanted = bn_inception_state(model).keys()
    missing = sorted(wanted - state.keys())
    unknown = sorted(state.keys() - wanted)
    if missing or unknown:
        difference = (
            f"{len(missing)} missing {missing[:3]}, {len(unknown)} unknown"
        )
        raise ValueError(
            "`state` must hold exactly BN-Inception's weights. "
            f"Received: {difference} {unknown[:3]}."
        )
    for layer in _layers(model):
        layer.set_weights(_converted(layer, state))
    return model


def bn_inception_state(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns the weights as PyTorch names and shapes them."""
    state = {}
    for layer in _layers(model):
        for name, value in zip(_names(layer), layer.get_weights(), strict=True):
            if value.ndim == 4:
                value = value.transpose(3, 2, 0, 1)
            state[f"{layer.name}.{name}"] = value
    return state


def _layers(model):
    weighted = keras.layers.Conv2D, keras.layers.BatchNormalization
    return [layer for layer in model.layers if isinstance(layer, weighted)]


def _names(layer):
    # In the order of `get_weights`.
    if isinstance(layer, keras.layers.Conv2D):
        return "weight", "bias"
    return "weight", "bias", "running_mean", "running_var"


def _converted(layer, state):
    weights = []
    for name, wanted in zip(_names(layer), layer.weights, strict=True):
        value = state[f"{layer.name}.{name}"]
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif value.ndim == 2 and 1 in value.shape:
            value = value.reshape(-1)  # (1, channels) in the oldest file
        if value.shape != tuple(wanted.shape):
            raise ValueError(
                f"`{layer.name}.{name}` must have shape {tuple(wanted.shape)} "
                f"once transposed. Received: {value.shape}."
            )
        weights.append(value)
    return weights
