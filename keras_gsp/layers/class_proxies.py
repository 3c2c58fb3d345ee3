"""Learned vectors of classes: proxies, and the targets of ZSR."""

from typing import Any

import keras
import numpy as np
from keras import constraints, initializers, ops, regularizers

from keras_gsp._checks import check_count
from keras_gsp._configured import ConfiguredLayer, known_size
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import class_indices, rows_of
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import full_matmul


class ClassProxies(ConfiguredLayer):
    """Computes cosine similarities of embeddings to learned class proxies.

    As the last layer of a model it makes a proxy loss work in a plain
    `model.compile(loss=...)`. The norms of proxies and embeddings do not
    change the output; the norm of a proxy scales its steps. A
    `keras.optimizers.MultiOptimizer` gives proxies their own learning rate.

    Args:
        num_classes: number of classes, at least 1.
        proxies_per_class: number of proxies of each class, at least 1.
            Default 1.
        proxies_initializer: initializer of the proxies. Default
            `"random_normal"`.
        proxies_regularizer: regularizer of the proxies, for example
            `gsp.losses.CenterRegularizer`. It receives the whole weight.
        trainable: `False` keeps proxies as they are set, samples that
            `ChanceConstrainedProgramming` exchanges.

    Call arguments:
        embeddings: (batch, embedding_size), of any norm.
        size: number of leading coordinates, of embeddings and proxies alike,
            that are compared. Default `None`: all.

    Output shape:
        (batch, num_classes, proxies_per_class), float32 or float64 under
        every dtype policy: losses multiply cosines by up to 40.

    Example:
        ```python
        proxies = gsp.layers.ClassProxies(num_classes=5, proxies_per_class=2)
        assert proxies(np.eye(3, 8)).shape == (3, 5, 2)
        assert proxies.proxies.shape == (5, 2, 8)
        ```
    """

    def __init__(
        self,
        num_classes: int,
        *,
        proxies_per_class: int = 1,
        proxies_initializer: str = "random_normal",
        proxies_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        # Embeddings in float32 must not be rounded under a mixed policy.
        super().__init__(autocast=False, **kwargs)
        check_count(
            num_classes=num_classes, proxies_per_class=proxies_per_class
        )
        self.num_classes = int(num_classes)
        self.proxies_per_class = int(proxies_per_class)
        self.proxies_initializer = keras.initializers.get(proxies_initializer)
        self.proxies_regularizer = keras.regularizers.get(proxies_regularizer)

    def build(self, input_shape: tuple) -> None:
        """Creates the proxies, (num_classes, proxies_per_class, size)."""
        size = known_size(input_shape)
        self.proxies = self.add_weight(
            name="proxies",
            shape=(self.num_classes, self.proxies_per_class, size),
            initializer=self.proxies_initializer,
            regularizer=self.proxies_regularizer,
            autocast=False,
        )

    def call(self, embeddings: Tensor, size: int | None = None) -> Tensor:
        proxies = self.flat_proxies()
        if size is not None:
            embeddings, proxies = embeddings[:, :size], proxies[:, :size]
        embeddings = unit_sphere(embeddings)
        proxies = ops.cast(unit_sphere(proxies), embeddings.dtype)
        cosines = full_matmul(embeddings, ops.transpose(proxies))
        return ops.reshape(
            cosines, (-1, self.num_classes, self.proxies_per_class)
        )

    def flat_proxies(self) -> Tensor:
        """Returns the proxies as rows, not normalized, ordered by class."""
        size = self.proxies.shape[-1]
        return ops.reshape(self.proxies, (-1, size))

    @property
    def proxy_labels(self) -> np.ndarray:
        """Class of each row of `flat_proxies()`, int32."""
        classes = np.arange(self.num_classes, dtype="int32")
        return np.repeat(classes, self.proxies_per_class)


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
        labels: (batch,) or (batch, 1), integers. One outside
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
