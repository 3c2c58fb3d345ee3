"""Class proxies: one or several learned vectors for each class."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_count
from keras_gsp._configured import ConfiguredLayer, known_size
from keras_gsp._tensor import Tensor
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import full_matmul


@keras.saving.register_keras_serializable(package="keras_gsp")
class ClassProxies(ConfiguredLayer):
    """Computes cosine similarities of embeddings to learned class proxies.

    As the last layer of a model it makes a proxy loss work in a plain
    `model.compile(loss=...)`. The norms of proxies and embeddings do not
    change the output; the norm of a proxy scales its steps.
    `gsp.models.proxy_optimizer` gives proxies their own learning rate.

    Args:
        num_classes: number of classes, at least 1.
        proxies_per_class: number of proxies of each class, at least 1.
            Default 1.
        proxies_initializer: initializer of the proxies. Default
            `"random_normal"`.
        proxies_regularizer: regularizer of the proxies, for example
            `gsp.losses.CenterRegularizer`. It receives the whole weight.
        proxies_constraint: constraint on the proxies.
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
        proxies_constraint: Any = None,
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
        self.proxies_constraint = keras.constraints.get(proxies_constraint)

    def build(self, input_shape: tuple) -> None:
        """Creates the proxies, (num_classes, proxies_per_class, size)."""
        size = known_size(input_shape)
        self.proxies = self.add_weight(
            name="proxies",
            shape=(self.num_classes, self.proxies_per_class, size),
            initializer=self.proxies_initializer,
            regularizer=self.proxies_regularizer,
            constraint=self.proxies_constraint,
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
