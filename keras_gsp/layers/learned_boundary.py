"""Learned distance boundary of the margin loss."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_count, check_positive
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import (
    class_indices,
    flat_labels,
    numeric_labels,
    rows_of,
)


@keras.saving.register_keras_serializable(package="keras_gsp")
class LearnedBoundary(ConfiguredLayer):
    """Holds the distance beta that `MarginLoss(learn_beta=True)` learns.

    One boundary between near and far for all samples, or one per class. It
    keeps the variable's dtype (float32) under a mixed policy.

    Args:
        num_classes: int, for one boundary per class, or `None` (default): one
            for all.
        initial_boundary: distance, positive. Default 1.2.

    Call arguments:
        labels: (batch,) or (batch, 1), the classes of the anchors; with one
            boundary for all only the batch size is used. One outside [0,
            num_classes) raises `ValueError` (in a TensorFlow graph
            `tf.errors.InvalidArgumentError`; under XLA its boundary is NaN).

    Output shape:
        (batch,), distances.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    boundary = gsp.layers.LearnedBoundary(num_classes=3)
    learner = gsp.models.MetricLearner(encoder, loss_layer=boundary)
    learner.compile("adam", loss=gsp.losses.MarginLoss(learn_beta=True))
    learner.fit(np.random.normal(size=(12, 8)), np.arange(12) % 3, verbose=0)
    ```

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017,
        section 4.2, without its regularizer, the sum of the boundaries times
        a constant.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        initial_boundary: float = 1.2,
        **kwargs: Any,
    ) -> None:
        # Labels given as floats must not be rounded to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        check_count(is_optional=True, num_classes=num_classes)
        check_positive(initial_boundary=initial_boundary)
        self.num_classes = num_classes
        self.initial_boundary = initial_boundary

    def __call__(self, labels: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; host labels are checked before Keras cuts them."""
        return super().__call__(numeric_labels(labels), *args, **kwargs)

    def build(self, input_shape: tuple | None = None) -> None:
        """Creates the boundaries, (num_classes,) or (1,)."""
        self.boundaries = self.add_weight(
            name="boundaries",
            shape=(self.num_classes or 1,),
            initializer=keras.initializers.Constant(self.initial_boundary),
            autocast=False,
        )
        self.built = True

    def call(self, labels: Tensor) -> Tensor:
        """Returns the boundary of each anchor."""
        if self.num_classes is None:
            count = ops.shape(labels)[0]
            return ops.broadcast_to(self.boundaries, (count,))
        indices = class_indices(flat_labels(labels), self.num_classes)
        return rows_of(self.boundaries[:, None], indices)[:, 0]

    def mean_boundary(self) -> Tensor:
        """Returns the mean of all boundaries, a scalar."""
        return ops.mean(self.boundaries)
