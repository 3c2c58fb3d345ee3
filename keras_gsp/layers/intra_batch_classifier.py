"""Class logits of embeddings, plain and refined by their batch."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.batch_message_passing import BatchMessagePassing
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class IntraBatchClassifier(keras.layers.Layer):
    """Classifies embeddings twice: as they are, and after messages.

    Holds the weights that `IntraBatchLoss` learns beside the encoder: rounds
    of `BatchMessagePassing` between the samples of a batch, and a linear
    classifier for what goes in and one for what comes out. None of them is
    used after training.

    Args:
        num_classes: training classes, at least 1.
        num_steps: see `BatchMessagePassing`.
        num_heads: see there; divides the embedding's size.
        hidden_factor: see there.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Call arguments:
        embeddings: see input shape.
        groups: optional (batch,), see `BatchMessagePassing`.

    Input shape:
        (batch, embedding_size), the size known.

    Output shape:
        Two of (batch, num_classes), logits of the plain and of the refined
        embeddings, float32 at least.

    Raises:
        ValueError: an argument outside its range, another rank, an unknown
            size, or one that the heads do not divide.

    Example:

    ```python
    classifier = gsp.layers.IntraBatchClassifier(num_classes=5, num_heads=2)
    plain, refined = classifier(np.ones((3, 8), "float32"))
    assert plain.shape == refined.shape == (3, 5)
    ```

    Reference:
        Learning Intra-Batch Connections for Deep Metric Learning (LIBC), 3.3
        and 3.4.
    """

    def __init__(
        self,
        num_classes: int,
        num_steps: int = 1,
        num_heads: int = 4,
        *,
        hidden_factor: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_classes=num_classes)
        self.num_classes = num_classes
        self.messages = BatchMessagePassing(
            num_steps,
            num_heads,
            hidden_factor=hidden_factor,
            name="messages",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: tuple) -> None:
        """Creates the rounds of messages and both classifiers."""
        self.messages.build(input_shape)
        dtype = "float64" if self.compute_dtype == "float64" else "float32"
        for name in ("plain", "refined"):
            kernel = self.add_weight(
                name=f"{name}_kernel",
                shape=(input_shape[-1], self.num_classes),
                dtype=dtype,
                autocast=False,
            )
            bias = self.add_weight(
                name=f"{name}_bias",
                shape=(self.num_classes,),
                initializer="zeros",
                dtype=dtype,
                autocast=False,
            )
            setattr(self, f"{name}_weights", (kernel, bias))

    def call(
        self, embeddings: Tensor, groups: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns logits of the plain and of the refined embeddings."""
        refined = self.messages(embeddings, groups=groups)
        return (
            _logits(embeddings, *self.plain_weights),
            _logits(refined, *self.refined_weights),
        )

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns the shapes of both outputs."""
        shape = (input_shape[0], self.num_classes)
        return shape, shape

    def compute_output_spec(
        self, embeddings: Any, groups: Any = None
    ) -> tuple[keras.KerasTensor, ...]:
        """Returns both shapes, in float32 at least."""
        dtype = "float64" if self.compute_dtype == "float64" else "float32"
        return tuple(
            keras.KerasTensor(shape, dtype=dtype)
            for shape in self.compute_output_shape(embeddings.shape)
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "num_steps": self.messages.num_steps,
            "num_heads": self.messages.num_heads,
            "hidden_factor": self.messages.hidden_factor,
        }


def _logits(embeddings, kernel, bias):
    embeddings = at_least_float32(embeddings)
    kernel = ops.cast(kernel, embeddings.dtype)
    return ops.matmul(embeddings, kernel) + ops.cast(bias, embeddings.dtype)
