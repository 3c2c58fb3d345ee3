"""Class logits of plain and of batch-refined embeddings, for LIBC."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.batch_message_passing import BatchMessagePassing
from keras_gsp.layers.configured_layer import ConfiguredLayer
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class IntraBatchClassifier(ConfiguredLayer):
    """Classifies embeddings before and after `BatchMessagePassing`.

    The layer that `IntraBatchLoss` trains with the encoder: message passing,
    a linear classifier of its inputs and one of its outputs. Not used after
    training.

    Args:
        num_classes: number of training classes, at least 1.
        num_steps: see `BatchMessagePassing`.
        num_heads: see `BatchMessagePassing`; divides the embedding size.
        hidden_factor: see `BatchMessagePassing`.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Call arguments:
        embeddings: (batch, embedding_size), the size known.
        groups: optional (batch,), see `BatchMessagePassing`.

    Output shape:
        Two of (batch, num_classes): logits of the plain and of the refined
        embeddings, float32 at least.

    Raises:
        ValueError: as `BatchMessagePassing`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

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
        self.num_steps = num_steps
        self.num_heads = num_heads
        self.hidden_factor = hidden_factor
        self.messages = BatchMessagePassing(
            num_steps,
            num_heads,
            hidden_factor=hidden_factor,
            name="messages",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: tuple) -> None:
        """Creates the weights of message passing and of both classifiers."""
        self.messages.build(input_shape)
        for name in ("plain", "refined"):
            kernel = self.full_precision_weight(
                f"{name}_kernel", (input_shape[-1], self.num_classes)
            )
            bias = self.full_precision_weight(
                f"{name}_bias", (self.num_classes,), "zeros"
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

    # The symbolic dtype is that of `call`, not the compute dtype.
    compute_output_spec = keras.Operation.compute_output_spec


def _logits(embeddings, kernel, bias):
    embeddings = at_least_float32(embeddings)
    kernel = ops.cast(kernel, embeddings.dtype)
    return ops.matmul(embeddings, kernel) + ops.cast(bias, embeddings.dtype)
