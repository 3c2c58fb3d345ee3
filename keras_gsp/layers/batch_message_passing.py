"""Self-attention between the samples of a batch, and its classifier (LIBC)."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_count
from keras_gsp._configured import ConfiguredLayer, known_size
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import at_least_float32, full_matmul


@keras.saving.register_keras_serializable(package="keras_gsp")
class BatchMessagePassing(ConfiguredLayer):
    r"""Refines embeddings by self-attention over the samples of a batch.

    Each sample attends to all samples of the batch, including itself, with
    several heads. The result and a perceptron's are added and normalized:

    .. math:: m_i = W_o \Big[ \sum_j \text{softmax}_j \frac{q_i^{(h)} \cdot
        k_j^{(h)}}{\sqrt{d / H}} v_j^{(h)} \Big]_{h=1}^H, \quad
        g_i = N(x_i + m_i), \quad
        x_i' = N(g_i + W_2 [W_1 g_i + b_1]_+ + b_2)

    with queries, keys and values linear in the embeddings, and a perceptron
    four times as wide as these. For training only,
    as the output of a sample depends on its batch; evaluation and search use
    the plain embeddings.

    Args:
        num_steps: number of rounds, each with separate weights, at least 1.
            Default 1.
        num_heads: H, at least 1, divides the embedding size. Default 4.

    Call arguments:
        embeddings: (batch, embedding_size), the size known.
        groups: optional (batch,), booleans or integers: samples attend only
            to samples of the same group. Default `None`: to all.

    Output shape:
        (batch, embedding_size).

    Example:
        ```python
        import numpy as np
        import keras_gsp as gsp

        layer = gsp.layers.BatchMessagePassing(num_heads=2)
        assert layer(np.ones((3, 8))).shape == (3, 8)
        ```

    Reference:
        Learning Intra-Batch Connections for Deep Metric Learning (LIBC), (2)
        to (6); trained with GSP in Generalized Sum Pooling for Metric
        Learning, Table 3.
    """

    def __init__(
        self, num_steps: int = 1, num_heads: int = 4, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_steps=num_steps, num_heads=num_heads)
        self.num_steps = num_steps
        self.num_heads = num_heads

    def build(self, input_shape: tuple) -> None:
        """Creates the weights of every round."""
        size = known_size(input_shape)
        if size % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the embedding's size. Received: "
                f"num_heads={self.num_heads}, size {size}."
            )
        self.rounds = [
            self._round(number, size) for number in range(self.num_steps)
        ]

    def call(self, embeddings: Tensor, groups: Tensor | None = None) -> Tensor:
        """Returns the refined embeddings."""
        refined = at_least_float32(embeddings)
        is_same = None
        if groups is not None:
            groups = ops.convert_to_tensor(groups)
            is_same = groups[:, None] == groups[None, :]
        for weights in self.rounds:
            messages = self._messages(weights, refined, is_same)
            refined = weights["message_normalization"](refined + messages)
            hidden = ops.matmul(refined, weights["hidden_kernel"])
            hidden = ops.relu(hidden + weights["hidden_bias"])
            change = ops.matmul(hidden, weights["output_kernel"])
            refined = weights["output_normalization"](
                refined + change + weights["output_bias"]
            )
        return ops.cast(refined, self.compute_dtype)

    def _round(self, number, size):
        hidden = 4 * size
        shapes = {
            "query_kernel": (size, size),
            "key_kernel": (size, size),
            "value_kernel": (size, size),
            "message_kernel": (size, size),
            "hidden_kernel": (size, hidden),
            "hidden_bias": (hidden,),
            "output_kernel": (hidden, size),
            "output_bias": (size,),
        }
        weights: dict[str, Any] = {
            name: self.full_precision_weight(
                f"{name}_{number}",
                shape,
                "zeros" if "bias" in name else "glorot_uniform",
            )
            for name, shape in shapes.items()
        }
        for name in ("message_normalization", "output_normalization"):
            layer = keras.layers.LayerNormalization(
                epsilon=1e-5, name=f"{name}_{number}", dtype=self.full_precision
            )
            layer.build((None, size))
            weights[name] = layer
            setattr(self, f"{name}_{number}", layer)
        return weights

    def _messages(self, weights, embeddings, is_same):
        """The attention outputs, (batch, embedding_size)."""
        queries, keys, values = (
            self._heads(ops.matmul(embeddings, weights[f"{name}_kernel"]))
            for name in ("query", "key", "value")
        )
        scores = full_matmul(queries, ops.swapaxes(keys, 1, 2))
        scores = scores * queries.shape[-1] ** -0.5
        if is_same is not None:
            # A sample attends to itself: no row is without a score.
            scores = ops.where(is_same, scores, -float("inf"))
        shares = ops.softmax(scores, axis=-1)
        mixed = ops.swapaxes(full_matmul(shares, values), 0, 1)
        mixed = ops.reshape(mixed, (-1, embeddings.shape[-1]))
        return ops.matmul(mixed, weights["message_kernel"])

    def _heads(self, vectors):
        """(batch, size) as (num_heads, batch, size / num_heads)."""
        size = vectors.shape[-1] // self.num_heads
        parts = ops.reshape(vectors, (-1, self.num_heads, size))
        return ops.swapaxes(parts, 0, 1)


@keras.saving.register_keras_serializable(package="keras_gsp")
class IntraBatchClassifier(ConfiguredLayer):
    """Classifies embeddings before and after `BatchMessagePassing`.

    The layer that `IntraBatchLoss` trains with the encoder: message passing,
    a linear classifier of its inputs and one of its outputs. Not used after
    training.

    Args:
        num_classes: number of training classes, at least 1.
        num_steps, num_heads: see `BatchMessagePassing`, also for the
            arguments of a call.

    Output shape:
        Two of (batch, num_classes): logits of the plain and of the refined
        embeddings, float32 at least.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_classes=num_classes)
        self.num_classes = num_classes
        self.num_steps = num_steps
        self.num_heads = num_heads
        self.messages = BatchMessagePassing(
            num_steps, num_heads, name="messages", dtype=self.dtype_policy
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


def _logits(embeddings, kernel, bias):
    embeddings = at_least_float32(embeddings)
    kernel = ops.cast(kernel, embeddings.dtype)
    return ops.matmul(embeddings, kernel) + ops.cast(bias, embeddings.dtype)
