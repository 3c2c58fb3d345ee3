"""What a loss says of itself, and what a training step gives it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from keras_gsp.ops.labels import flat_labels
from keras_gsp.ops.precision import exact_mean


@dataclass(frozen=True)
class References:
    """Embeddings that a batch is compared with: proxies, or a memory.

    Args:
        labels: (references,).
        embeddings: (references, embedding_size).
        excluded: boolean (batch, references), pairs that do not count, or
            `None`.
        is_warm: boolean scalar, whether they can be used yet; `None`: always.
    """

    labels: Any
    embeddings: Any
    excluded: Any = None
    is_warm: Any = None

    def once_warm(
        self, loss: Callable[[], Any], stand_in: Callable[[], Any]
    ) -> Any:
        """Returns `loss()`, or `stand_in()` while these warm up."""
        if self.is_warm is None:
            return loss()
        return ops.cond(self.is_warm, loss, stand_in)


@dataclass(frozen=True)
class StepParts:
    """Everything of one step that a loss or a regularizer may ask for.

    Labels and embeddings are always there; the rest where the learner has
    it. Under `tf.distribute` they are those of the global batch.

    Args:
        labels: (batch,), or as `loss.checked_labels` returned them.
        embeddings: (batch, embedding_size), as the encoder returns them.
        histograms: (batch, num_prototypes).
        pooled: (batch, embedding_size), what the histograms describe: the
            pooled features before they are normalized.
        proxies: the `ClassProxies`: embeddings to similarities.
        class_embeddings: the `ClassEmbeddings`.
        loss_layer: the layer that holds a loss's own weights.
        first_half: boolean (batch,), halves without a common class.
        references: proxies and memory, as far as there are any.
        in_batch_weight: of the pairs within the batch beside `references`.
    """

    labels: Any
    embeddings: Any
    histograms: Any = None
    pooled: Any = None
    proxies: Any = None
    class_embeddings: Any = None
    loss_layer: Any = None
    first_half: Any = None
    references: tuple[References, ...] = ()
    in_batch_weight: float = 0.0


class MetricLoss(keras.losses.Loss):
    """Base of every loss that `MetricLearner` can be compiled with.

    The learner asks and never looks at types. A loss says which parts of a
    step it cannot do without (`needs`) and which it uses where they are there
    (`takes`); a part that is given and neither needed nor taken is refused at
    `compile`. It computes its value from the parts. As it stands here a loss
    is a function of labels and embeddings alone, `call`, as list-wise losses
    are.

    Attributes:
        needs: names among `"proxies"`, `"memory"`, `"class_embeddings"`,
            `"loss_layer"`, `"histograms"`, `"first_half"`.
        takes: names among these and `"in_batch_weight"`.

    Example:

    ```python
    class MeanSquare(gsp.losses.MetricLoss):
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

    def checked_labels(self, labels: Any) -> Any:
        """Returns labels as this loss takes them: (batch,) numbers.

        Raises:
            TypeError: strings.
            ValueError: another rank.
        """
        return flat_labels(labels)

    def training_loss(self, parts: StepParts) -> Any:
        """Returns the loss of a training step, a scalar."""
        return self.validation_loss(parts)

    def validation_loss(self, parts: StepParts) -> Any:
        """Returns the loss outside training, a scalar."""
        return exact_mean(self.call(parts.labels, parts.embeddings))
