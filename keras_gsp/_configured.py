"""Layers and losses whose config is the list of their arguments."""

import inspect
from typing import Any, Self

import keras


class Configured:
    """Something that keeps each argument in an attribute of the same name.

    Classes of this package are registered, so that Keras loads them by name.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("keras_gsp."):
            keras.saving.register_keras_serializable("keras_gsp")(cls)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, read from their attributes.

        They are those of `__init__` and, if it passes on `**kwargs`, of the
        base's.
        """
        names = arguments_of(type(self))
        has_more = isinstance(self, keras.layers.Layer) and "name" not in names
        config = super().get_config() if has_more else {}  # type: ignore[misc]
        for name in names:
            value = getattr(self, name)
            config[name] = keras.saving.serialize_keras_object(value)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns what `get_config` described."""
        read = keras.saving.deserialize_keras_object
        return cls(**{name: read(value) for name, value in config.items()})


def arguments_of(kind: type) -> list[str]:
    """Lists the arguments of a class, those that it passes to bases too."""
    names: list[str] = []
    for base in kind.__mro__:
        # Their own config has the others.
        if base in (keras.layers.Layer, keras.Model):
            break
        if "__init__" in vars(base):
            known = inspect.signature(vars(base)["__init__"]).parameters
            rest = {n for n, x in known.items() if x.kind == x.VAR_KEYWORD}
            names += [name for name in known if name not in {"self", *rest}]
            if not rest:
                break
    return names


class ConfiguredLayer(Configured, keras.layers.Layer):
    """A layer that keeps each argument in an attribute of the same name."""

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
