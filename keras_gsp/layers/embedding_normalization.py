"""Normalize embeddings to the unit sphere or into the unit ball."""

from typing import Any

from keras_gsp._configured import ConfiguredLayer
from keras_gsp._tensor import Tensor
from keras_gsp.ops.normalization import check_normalization, normalize


class EmbeddingNormalization(ConfiguredLayer):
    """Normalizes embeddings to the unit sphere or into the unit ball.

    `"l2"` (default): x / |x|. `"ball"`: x / max(1, |x|), the choice of the
    chance constrained programming papers. `None`: no change. The output is
    float32 under every mixed policy: eight bits of mantissa are too few to
    rank neighbors.
    """

    def __init__(self, normalization: str | None = "l2", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.normalization = check_normalization(normalization)
        self.supports_masking = True

    def call(self, embeddings: Tensor) -> Tensor:
        return normalize(embeddings, self.normalization)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
