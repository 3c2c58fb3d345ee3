"""Learned class embeddings, the targets of the zero-shot regularizer (ZSR)."""

from typing import Any

from keras import constraints, initializers, regularizers, saving

from keras_gsp._checks import check_count
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import class_indices, rows_of


@saving.register_keras_serializable(package="keras_gsp")
class ClassEmbeddings(ConfiguredLayer):
    """Looks up a trainable vector for each class label, a target of ZSR.

    `ZeroShotLoss.compute` takes the whole table, `layer.embeddings`. Table and
    output keep the variable's dtype (float32) under a mixed policy.

    Args:
        num_classes: int, at least 1. Labels are whole numbers in
            [0, num_classes).
        embedding_size: int, at least 1.
        embeddings_initializer: initializer of the table. Default `None`: a
            truncated normal that gives norms of about sqrt(2). Those of the
            reference code's `"he_normal"` depend on the number of classes:
            3.8 for 18, 0.15 for 11,318.
        embeddings_regularizer: regularizer of the table. Default none.
        embeddings_constraint: constraint on the table. Default none.

    Call arguments:
        labels: (batch,) or (batch, 1), integers or whole floats. One outside
            [0, num_classes) raises `ValueError` (in a TensorFlow graph
            `tf.errors.InvalidArgumentError`; under XLA its vector is NaN).

    Output shape:
        (batch, embedding_size).

    Example:
        ```python
        class_embeddings = gsp.layers.ClassEmbeddings(10, 4)
        targets = class_embeddings(np.array([3, 3, 9]))  # (3, 4)
        table = class_embeddings.embeddings  # (10, 4)
        ```

    Reference:
        GSP, section 4.3: the upsilon of the zero-shot prediction loss.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        embeddings_initializer: Any = None,
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        # Labels given as floats must not be rounded to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        check_count(num_classes=num_classes, embedding_size=embedding_size)
        self.num_classes = num_classes
        self.embedding_size = embedding_size
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        # The shape needs no input: the table exists before any call.
        self.build()

    def __call__(self, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; host labels are checked before Keras cuts them."""
        return super().__call__(batch_labels(labels), *args, **kwargs)

    def build(self, input_shape: tuple | None = None) -> None:
        """Creates the table, (num_classes, embedding_size)."""
        if getattr(self, "built", False):
            return
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_classes, self.embedding_size),
            initializer=self.embeddings_initializer
            or initializers.VarianceScaling(2.0, mode="fan_out"),
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            autocast=False,
        )
        self.built = True

    def call(self, labels: Tensor) -> Tensor:
        indices = class_indices(labels, self.num_classes)
        return rows_of(self.embeddings, indices)
