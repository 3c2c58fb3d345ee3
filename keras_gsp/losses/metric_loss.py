"""The interface between a loss and the training step of `MetricLearner`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from keras_gsp._configured import Configured
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import exact_mean


@dataclass(frozen=True)
class References:
    """Embeddings (references, size) to compare with: proxies, or a memory.

    Pairs that `excluded` (batch, references) marks do not count; `is_warm`
    says whether they can be used yet, `None`: always.
    """

    labels: Tensor
    embeddings: Tensor
    excluded: Tensor | None = None
    is_warm: Tensor | None = None

    def once_warm(
        self, loss: Callable[[], Tensor], otherwise: Callable[[], Tensor]
    ) -> Tensor:
        """Returns `loss()`, or `otherwise()` while these warm up."""
        if self.is_warm is None:
            return loss()
        return ops.cond(self.is_warm, loss, otherwise)


@dataclass(frozen=True)
class StepParts:
    """What a loss or a regularizer may use in one step.

    Labels and embeddings are always given, the rest if the learner has it.
    Under `tf.distribute` they are those of the global batch.

    Args:
        labels: (batch,), integers.
        embeddings: (batch, embedding_size), the encoder's output.
        histograms: (batch, num_prototypes).
        pooled: (batch, embedding_size), the pooled features before
            normalization, which the histograms describe.
        proxies: the `ClassProxies`: embeddings to similarities.
        class_embeddings: the `ClassEmbeddings`.
        first_half: boolean (batch,), halves without a common class.
        references: proxies and memory, if there are any.
        in_batch_weight: weight of the pairs within the batch beside these.
    """

    labels: Tensor
    embeddings: Tensor
    histograms: Tensor | None = None
    pooled: Tensor | None = None
    proxies: Any = None
    class_embeddings: Any = None
    first_half: Tensor | None = None
    references: tuple[References, ...] = ()
    in_batch_weight: float = 0.0


class MetricLoss(Configured, keras.losses.Loss):
    """Base of every loss that `MetricLearner` can be compiled with.

    `MetricLearner` calls `training_loss` or `validation_loss`. By default
    both are the mean of `call(labels, embeddings)`. `compile` refuses parts of
    a step that a loss neither `needs` nor `takes`.

    Attributes:
        needs: parts that are required, among `"proxies"`, `"memory"`,
            `"class_embeddings"`, `"histograms"`, `"first_half"`.
        takes: parts used if present, among these and `"in_batch_weight"`.

    Example:
        ```python
        from keras_gsp.losses.metric_loss import MetricLoss

        class MeanSquare(MetricLoss):
            def call(self, labels, embeddings):
                return keras.ops.mean(keras.ops.square(embeddings), axis=-1)

        encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        learner = gsp.models.MetricLearner(encoder)
        learner.compile("sgd", loss=MeanSquare())
        learner.fit(np.ones((4, 8)), np.arange(4), verbose=0)
        ```
    """

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    def training_loss(self, parts: StepParts) -> Tensor:
        """Returns the loss of a training step, a scalar."""
        return self.validation_loss(parts)

    def validation_loss(self, parts: StepParts) -> Tensor:
        """Returns the loss outside training, a scalar."""
        return exact_mean(self.call(parts.labels, parts.embeddings))


class Regularizer(Configured):
    """Base of the losses on the class-disjoint halves of a batch."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises `TypeError`: it is no loss of `compile`."""
        name = type(self).__name__
        raise TypeError(
            "`loss` must be a loss of embeddings. Received: "
            f"{name}, a regularizer. Give it to "
            f"`MetricLearner(regularizer={name}(...))`, and compile that with "
            "a pair or proxy loss."
        )


def check_not_empty(tensor: Tensor, name: str) -> None:
    """Raises `ValueError` for a batch that is known to be empty."""
    if tensor.shape[0] == 0:
        raise ValueError(
            f"`{name}` must have at least one row, a sample of the batch. "
            f"Received: shape {tuple(tensor.shape)}."
        )
