"""Patches of a vision transformer, as a sequence or as a feature map."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_count, check_integer
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._tensor import Tensor


class PatchTokens(ConfiguredLayer):
    """Removes the first tokens of a sequence and of its mask."""

    def __init__(self, prefix_tokens: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_integer(least=0, prefix_tokens=prefix_tokens)
        self.prefix_tokens = prefix_tokens
        self.supports_masking = True

    def call(self, tokens: Tensor) -> Tensor:
        self.compute_output_shape(tokens.shape)
        return tokens[:, self.prefix_tokens :]

    def compute_mask(
        self, inputs: Tensor, mask: Tensor | None = None
    ) -> Tensor | None:
        return None if mask is None else mask[:, self.prefix_tokens :]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns (batch, tokens - prefix_tokens, channels)."""
        batch, tokens, channels = input_shape
        if tokens is None:
            return batch, tokens, channels
        if tokens <= self.prefix_tokens:
            raise ValueError(
                "There must be tokens after the first `prefix_tokens`. "
                f"Received: prefix_tokens={self.prefix_tokens}, tokens of "
                f"shape {tuple(input_shape)}."
            )
        return batch, tokens - self.prefix_tokens, channels


class TokenGrid(ConfiguredLayer):
    """Rearranges the patch tokens of a vision transformer into a feature map.

    Patches come row by row after the class and register tokens, which are
    removed. A wrong number of tokens fails in the call, not in symbolic calls:
    the number that a backbone declares is not always the one it returns.
    """

    def __init__(
        self,
        grid_shape: tuple[int, int],
        *,
        prefix_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        rows, columns = grid_shape
        check_count(rows=rows, columns=columns)
        check_integer(least=0, prefix_tokens=prefix_tokens)
        self.grid_shape = (rows, columns)
        self.prefix_tokens = prefix_tokens
        # Receive a mask, to refuse it: Keras would drop it.
        self.supports_masking = True

    def call(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        _check_no_mask(tokens, mask)
        patches = tokens[:, self.prefix_tokens :]
        # The batch size, not -1: surplus tokens must not become images.
        shape = (ops.shape(tokens)[0], *self.grid_shape, tokens.shape[-1])
        return ops.reshape(patches, shape)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns (batch, rows, columns, channels)."""
        return (input_shape[0], *self.grid_shape, input_shape[-1])

    def compute_output_spec(
        self, tokens: Tensor, mask: Tensor | None = None
    ) -> keras.KerasTensor:
        """Returns the symbolic output for any declared number of tokens."""
        _check_no_mask(tokens, mask)
        return keras.KerasTensor(
            self.compute_output_shape(tokens.shape), dtype=self.compute_dtype
        )


def _check_no_mask(tokens, mask):
    if mask is not None:
        raise ValueError(
            "All tokens of a feature map must count: it has no mask. Received: "
            f"masked tokens of shape {tuple(tokens.shape)}. Pool them as a "
            "sequence."
        )
