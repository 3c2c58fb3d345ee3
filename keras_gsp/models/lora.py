"""LoRA on backbones: low-rank factors are trained, kernels stay as they are."""

import math
import tempfile
from typing import Any

import keras

from keras_gsp._checks import check_count
from keras_gsp._compat import layers_at_any_depth
from keras_gsp._processes import as_numpy


def enable_lora(backbone: keras.Model, rank: int) -> None:
    r"""Freezes a backbone and adds low-rank factors to its kernels.

    .. math:: W' = W + A B, \quad B = 0 \text{ at the start}

    See `build_encoder` for the layers. Factors and the biases of these layers
    are trained, as in Keras; nothing else is. Batch normalization uses its
    stored statistics.
    """
    check_count(lora_rank=rank)
    if lora_layers(backbone):
        raise ValueError(
            "`backbone` must be one without LoRA. Received: "
            f"{len(lora_layers(backbone))} layers with it. See `merge_lora`."
        )
    layers = list(layers_at_any_depth(backbone))
    for layer in layers:
        # A model of frozen layers that were trainable would be saved as
        # frozen, and load with frozen factors.
        if not isinstance(layer, keras.Model):
            layer.trainable = False
    for layer in layers:
        if hasattr(layer, "default_lora_layer_names"):
            layer.enable_lora(rank)
    if not lora_layers(backbone):
        for layer in layers:
            if _saves_weights(layer, rank):
                layer.trainable = True
                layer.enable_lora(rank)
    if not lora_layers(backbone):
        raise ValueError(
            "`lora_rank` must be below the rank of a kernel of the backbone. "
            f"Received: lora_rank={rank}, {len(layers)} layers, none of "
            "which it suits. Lower it, or train the backbone as a whole."
        )


def lora_layers(model: keras.Model) -> list:
    """Returns the layers of a model, at any depth, that have factors."""
    layers = layers_at_any_depth(model)
    return [layer for layer in layers if getattr(layer, "lora_enabled", False)]


def merge_lora(model: keras.Model) -> keras.Model:
    """Returns a model without LoRA that computes the same, to rounding.

    Each kernel becomes W + A B; no layer has factors, and nothing of the
    backbone is trained. Exports of an encoder are merged by themselves.

    Args:
        model: an encoder or a backbone that can be saved.

    Returns:
        A copy, or `model` itself if it has no LoRA.

    Example:

    ```python
    backbone = keras.Sequential(
        [keras.Input((32, 32, 3)), keras.layers.Conv2D(16, 3, strides=4)]
    )
    encoder = gsp.models.build_encoder(backbone, lora_rank=2)
    merged = gsp.models.merge_lora(encoder)
    assert merged.count_params() < encoder.count_params()
    ```
    """
    if not lora_layers(model):
        return model
    config = keras.saving.serialize_keras_object(model)
    merged = keras.saving.deserialize_keras_object(_without_lora(config))
    # Keras stores merged kernels.
    with tempfile.TemporaryDirectory() as folder:
        model.save_weights(f"{folder}/merged.weights.h5")
        merged.load_weights(f"{folder}/merged.weights.h5")
    return merged


def restart_factors(model: keras.Model) -> None:
    """Gives factors that are all zero a new start.

    So Keras loads them beside merged kernels, and both gradients are 0.
    """
    for layer in lora_layers(model):
        first, second = layer.lora_kernel_a, layer.lora_kernel_b
        if not as_numpy(first).any() and not as_numpy(second).any():
            start = keras.initializers.HeUniform()
            first.assign(start(first.shape, first.dtype))


def _saves_weights(layer, rank):
    if not hasattr(layer, "enable_lora") or not hasattr(layer, "kernel"):
        return False
    *rows, columns = layer.kernel.shape
    return rank * (math.prod(rows) + columns) < math.prod(rows) * columns


def _without_lora(config: Any) -> Any:
    if isinstance(config, dict):
        return {
            key: _without_lora(value)
            for key, value in config.items()
            if key not in ("lora_rank", "lora_alpha")
        }
    if isinstance(config, list | tuple):
        return type(config)(map(_without_lora, config))
    return config
