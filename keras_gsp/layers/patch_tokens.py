"""Remove the class and register tokens from a token sequence."""

from typing import Any

import keras

from keras_gsp.layers.configured_layer import ConfiguredLayer
from keras_gsp.ops.arguments import check_integer
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class PatchTokens(ConfiguredLayer):
    """Removes the first tokens of a sequence, and of its mask.

    Keras's `Cropping1D` drops the mask, so that a pooling after it would pool
    padding.
    """

    def __init__(self, prefix_tokens: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_integer(least=0, prefix_tokens=prefix_tokens)
        self.prefix_tokens = prefix_tokens
        self.supports_masking = True

    def call(self, tokens: Tensor) -> Tensor:
        """Returns the tokens after the prefix."""
        self.compute_output_shape(tokens.shape)
        return tokens[:, self.prefix_tokens :]

    def compute_mask(
        self, inputs: Tensor, mask: Tensor | None = None
    ) -> Tensor | None:
        """Returns the mask of the remaining tokens."""
        return None if mask is None else mask[:, self.prefix_tokens :]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns (batch, tokens - prefix_tokens, channels)."""
        shape = tuple(input_shape)
        if len(shape) != 3:
            raise ValueError(
                "Tokens must have shape (batch, tokens, channels). Received: "
                f"shape {shape}."
            )
        if shape[1] is None:
            return shape
        left = shape[1] - self.prefix_tokens
        if left < 1:
            raise ValueError(
                "There must be tokens after the first `prefix_tokens`. "
                f"Received: prefix_tokens={self.prefix_tokens}, tokens of "
                f"shape {shape}."
            )
        return shape[0], left, shape[2]
