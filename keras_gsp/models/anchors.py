"""The weights of the last problem, and the pull towards them."""

from typing import Any

import keras
from keras import ops

from keras_gsp.models.scalar import scalar
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class AnchoredWeights(keras.layers.Layer):
    r"""Holds the anchors of chance constrained programming as its weights.

    The penalty is :math:`\frac{\lambda_k}{2} |\theta - \theta^*|^2` over all
    anchored variables, with gradient :math:`\lambda_k (\theta - \theta^*)`:
    0 in the first problem, :math:`\lambda` in the second, then `decay` times
    the last one. All state is in non-trainable weights, hence in every
    checkpoint.

    Args:
        weight: lambda, at least 0.
        decay: factor from problem to problem, in (0, 1]. Default 1.
        **kwargs: `name` and other arguments of a Keras layer.

    Reference:
        Deep metric learning with alternating sets of alternating proxies,
        Algorithm 1, with the sign of the pull corrected.
    """

    def __init__(
        self, weight: float, *, decay: float = 1.0, **kwargs: Any
    ) -> None:
        kwargs["dtype"] = "float32"
        super().__init__(trainable=False, **kwargs)
        self.weight = weight
        self.decay = decay

    def build_for(self, variables: list) -> None:
        """Creates one anchor for each variable, and the counters.

        Args:
            variables: list of Keras variables, the encoder's trainable ones.
        """
        self.anchors = [
            self.add_weight(
                name=f"anchor_{position}",
                shape=variable.shape,
                dtype=variable.dtype,
                initializer="zeros",
                trainable=False,
                autocast=False,
            )
            for position, variable in enumerate(variables)
        ]
        self.scale = self.add_weight(
            name="scale", shape=(), initializer="zeros", trainable=False
        )
        self.problem = self.add_weight(
            name="problem",
            shape=(),
            dtype="int32",
            initializer="ones",
            trainable=False,
        )
        self.built = True

    def penalty(self, variables: list) -> Any:
        """Returns the penalty, a scalar; its gradient is the pull.

        Raises:
            RuntimeError: other variables than the anchors were made for.
        """
        self.check(variables)
        squares = [
            ops.sum(ops.square(ops.cast(variable - anchor, "float32")))
            for variable, anchor in zip(variables, self.anchors, strict=True)
        ]
        return 0.5 * self.scale * sum(squares)

    def pull(self, variables: list, factor: Any) -> Any:
        r"""Returns `factor` times the gradient of the penalty.

        That is :math:`+\lambda_k (\theta - \theta^*)`, a tensor for each
        variable in its dtype.

        Raises:
            RuntimeError: as `penalty`.
        """
        self.check(variables)
        return [
            ops.cast(factor * self.scale, variable.dtype) * (variable - anchor)
            for variable, anchor in zip(variables, self.anchors, strict=True)
        ]

    def distance(self, variables: list) -> Any:
        """Returns |theta - theta*|, a float."""
        self.check(variables)
        squares = [
            ops.sum(ops.square(ops.cast(variable - anchor, "float32")))
            for variable, anchor in zip(variables, self.anchors, strict=True)
        ]
        return float(ops.sqrt(sum(squares)))

    def start_problem(self, values: Tensor) -> None:
        """Moves the anchors and counts the next problem.

        Args:
            values: list of arrays shaped like the anchored variables.
        """
        for anchor, value in zip(self.anchors, values, strict=True):
            anchor.assign(value)
        problem = scalar(self.problem)
        self.scale.assign(self.weight * self.decay ** (problem - 1))
        self.problem.assign(problem + 1)

    def check(self, variables: list) -> None:
        """Raises `RuntimeError` when the variables are not those anchored."""
        shapes = [tuple(variable.shape) for variable in variables]
        anchored = [tuple(anchor.shape) for anchor in self.anchors]
        if shapes != anchored:
            raise RuntimeError(
                "The encoder's trainable weights must stay those that were "
                "anchored; freeze or unfreeze layers before the learner is "
                f"built. Received: {len(shapes)} weights for "
                f"{len(anchored)} anchors."
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "weight": self.weight,
            "decay": self.decay,
        }
