"""Layers whose config is the list of their arguments."""

import inspect
from typing import Any

import keras


class ConfiguredLayer(keras.layers.Layer):
    """A layer that keeps each argument in an attribute of the same name."""

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        for name in inspect.signature(type(self).__init__).parameters:
            if name not in ("self", "kwargs"):
                value = getattr(self, name)
                config[name] = keras.saving.serialize_keras_object(value)
        return config

    def full_precision_weight(
        self,
        name: str,
        shape: tuple[int, ...],
        initializer: Any = "glorot_uniform",
        regularizer: Any = None,
    ) -> keras.Variable:
        """Adds a weight that stays float32 or wider under every policy."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=regularizer,
            dtype=self.full_precision,
            autocast=False,
        )

    @property
    def full_precision(self) -> str:
        """float64 where the layer computes in it, float32 otherwise."""
        return "float64" if self.compute_dtype == "float64" else "float32"


def known_size(input_shape: tuple) -> int:
    """Returns the size of embeddings (batch, embedding_size).

    Raises `ValueError` for another rank or an unknown size.
    """
    if len(input_shape) != 2 or input_shape[1] is None:
        raise ValueError(
            "Embeddings must have shape (batch, embedding_size), the size "
            f"known. Received: shape {tuple(input_shape)}."
        )
    return input_shape[1]
