"""The state of chance constrained programming, as weights of the learner.

The learner creates them, so that every checkpoint has them; the callback
`ChanceConstrainedProgramming` decides when they change.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._configured import ConfiguredLayer
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import at_least_float32


class AnchoredWeights(ConfiguredLayer):
    r"""Holds the anchors of chance constrained programming as its weights.

    The penalty is :math:`\frac{\lambda_k}{2} |\theta - \theta^*|^2` over all
    anchored variables, its gradient :math:`\lambda_k (\theta - \theta^*)`, with
    :math:`\lambda_k` 0 in the first problem, then :math:`\lambda`.
    """

    def __init__(self, weight: float, **kwargs: Any) -> None:
        kwargs["dtype"] = "float32"
        super().__init__(trainable=False, **kwargs)
        self.weight = weight

    def build_for(self, variables: list) -> None:
        """Creates one anchor for each trainable variable of the encoder."""
        self.anchors = [
            _add_state(
                self, f"anchor_{number}", variable.dtype, shape=variable.shape
            )
            for number, variable in enumerate(variables)
        ]
        self.scale = _add_state(self, "scale", "float32")
        self.problem = _add_state(self, "problem", "int32", "ones")
        self.built = True

    def penalty(self, variables: list) -> Tensor:
        """Returns the penalty, a scalar."""
        squared = self._squared_distance(variables)
        return 0.5 * ops.cast(self.scale, squared.dtype) * squared

    def pull(self, variables: list, factor: Tensor) -> list:
        """Returns `factor` times the penalty's gradient, for each variable."""
        self._check(variables)
        return [
            ops.cast(factor * self.scale, variable.dtype) * (variable - anchor)
            for variable, anchor in zip(variables, self.anchors, strict=True)
        ]

    def distance(self, variables: list) -> float:
        """Returns |theta - theta*|."""
        return scalar(ops.sqrt(self._squared_distance(variables)))

    def start_problem(self, values: list) -> None:
        """Moves the anchors to new values and counts the next problem."""
        for anchor, value in zip(self.anchors, values, strict=True):
            anchor.assign(value)
        self.scale.assign(self.weight)
        self.problem.assign(scalar(self.problem) + 1)

    def _squared_distance(self, variables):
        self._check(variables)
        squares = [
            ops.sum(ops.square(at_least_float32(variable - anchor)))
            for variable, anchor in zip(variables, self.anchors, strict=True)
        ]
        dtype = squares[0].dtype if squares else "float32"
        return sum(squares, start=ops.zeros((), dtype))

    def _check(self, variables):
        shapes = [tuple(variable.shape) for variable in variables]
        anchored = [tuple(anchor.shape) for anchor in self.anchors]
        if shapes != anchored:
            raise RuntimeError(
                "The encoder's trainable weights must stay those that were "
                "anchored; freeze layers before the learner is built. "
                f"Received: {len(shapes)} for {len(anchored)} anchors."
            )


@keras.saving.register_keras_serializable(package="keras_gsp")
class ProblemProgress(keras.layers.Layer):
    """Holds the scores and counters of a problem as weights.

    Attributes:
        best_score: best score of this problem, larger is better.
        best_of_all: best score of all problems.
        best_problem: the problem that reached it first, 0 before any score.
        waited: evaluations since the best one or since the problem began.
        is_warming_up: 1 while pairs within the batch replace proxies.
        is_started: 1 after the first proxies were chosen.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs["dtype"] = "float32"
        super().__init__(trainable=False, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        lowest = keras.initializers.Constant(-np.inf)
        self.best_score = _add_state(self, "best_score", "float32", lowest)
        self.best_of_all = _add_state(self, "best_of_all", "float32", lowest)
        self.covering_radius = _add_state(self, "covering_radius", "float32")
        self.far_share = _add_state(self, "far_share", "float32")
        self.best_problem = _add_state(self, "best_problem", "int32")
        self.waited = _add_state(self, "waited", "int32")
        self.steps = _add_state(self, "steps", "int32")
        self.is_warming_up = _add_state(self, "is_warming_up", "int32")
        self.is_started = _add_state(self, "is_started", "int32")
        self.built = True

    def record(self, score: float, problem: int) -> None:
        """Counts an evaluation of a problem; a larger score is better."""
        # In the precision of the weight: an equal score is no improvement.
        score, best = float(np.float32(score)), scalar(self.best_score)
        # If the first score is NaN, the next one replaces it.
        if np.isfinite(best) and not score > best:
            self.waited.assign_add(1)
            return
        self.best_score.assign(score)
        self.waited.assign(0)
        if score > scalar(self.best_of_all):
            self.best_of_all.assign(score)
            self.best_problem.assign(problem)

    def start_problem(self, covering_radius: float, far_share: float) -> None:
        """Resets the counters for the next problem."""
        self.best_score.assign(-np.inf)
        self.waited.assign(0)
        self.steps.assign(0)
        self.covering_radius.assign(covering_radius)
        self.far_share.assign(far_share)
        self.is_warming_up.assign(0)
        self.is_started.assign(1)


def scalar(variable: keras.Variable | Tensor) -> Any:
    """Returns the value of a scalar as an int or a float."""
    # `int(variable)` fails for one that `MirroredStrategy` has copied.
    return ops.convert_to_numpy(variable).item()


def _add_state(layer, name, dtype, initializer="zeros", shape=()):
    return layer.add_weight(
        name=name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        trainable=False,
        autocast=False,
    )
