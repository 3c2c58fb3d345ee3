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
