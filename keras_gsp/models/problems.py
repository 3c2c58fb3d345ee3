"""The state of chance constrained programming, as weights of the learner.

`AnchoredWeights` holds the anchors and computes the pull towards them,
`ProblemProgress` the best snapshot of the current problem and its counters.
`keras_gsp.callbacks.chance_constrained` decides when they change.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.layers.configured_layer import ConfiguredLayer
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class AnchoredWeights(ConfiguredLayer):
    r"""Holds the anchors of chance constrained programming as its weights.

    The penalty is :math:`\frac{\lambda_k}{2} |\theta - \theta^*|^2` over all
    anchored variables, its gradient :math:`\lambda_k (\theta - \theta^*)`.
    :math:`\lambda_k` is 0 in the first problem, :math:`\lambda` in the
    second, and is multiplied by `decay` for each problem after it. All state
    is in non-trainable weights, hence in every checkpoint.

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
        """Creates one anchor for each trainable variable of the encoder."""
        self.anchors = [
            _add_like(self, f"anchor_{number}", variable)
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
        return float(ops.sqrt(self._squared_distance(variables)))

    def start_problem(self, values: list) -> None:
        """Moves the anchors to new values and counts the next problem."""
        for anchor, value in zip(self.anchors, values, strict=True):
            anchor.assign(value)
        problem = scalar(self.problem)
        self.scale.assign(self.weight * self.decay ** (problem - 1))
        self.problem.assign(problem + 1)

    def _squared_distance(self, variables):
        """A scalar in the variables' precision, float32 at least."""
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
                "anchored; freeze or unfreeze layers before the learner is "
                f"built. Received: {len(shapes)} weights for "
                f"{len(anchored)} anchors."
            )


@keras.saving.register_keras_serializable(package="keras_gsp")
class ProblemProgress(keras.layers.Layer):
    """Holds the best snapshot of a problem and its counters as weights.

    All of it is in non-trainable weights: a checkpoint of the learner in the
    middle of a problem is enough to resume it.

    Attributes:
        best_encoder: the encoder at the problem's best evaluation, one
            variable for each of `moving_variables(encoder)`.
        best_proxies: the proxies at that evaluation.
        best_score: its score, larger is better.
        best_of_all: best score of all problems that have ended.
        waited: evaluations since the best one.
        steps: steps of this problem.
        barren_problems: problems in a row without a new `best_of_all`.
        covering_radius: of the pool when this problem began.
        is_warming_up: 1 while pairs within the batch replace proxies.
        is_started: 1 after the first proxies were chosen.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs["dtype"] = "float32"
        super().__init__(trainable=False, **kwargs)

    def build_for(self, encoder: keras.Model, proxies: keras.Variable) -> None:
        """Creates a slot for each variable that training moves."""
        self.best_encoder = [
            _add_like(self, f"best_encoder_{number}", variable)
            for number, variable in enumerate(moving_variables(encoder))
        ]
        self.best_proxies = _add_like(self, "best_proxies", proxies)
        lowest = keras.initializers.Constant(-np.inf)
        self.best_score = _add_state(self, "best_score", "float32", lowest)
        self.best_of_all = _add_state(self, "best_of_all", "float32", lowest)
        self.covering_radius = _add_state(self, "covering_radius", "float32")
        self.waited = _add_state(self, "waited", "int32")
        self.steps = _add_state(self, "steps", "int32")
        self.barren_problems = _add_state(self, "barren_problems", "int32")
        self.is_warming_up = _add_state(self, "is_warming_up", "int32")
        self.is_started = _add_state(self, "is_started", "int32")
        self.built = True

    def record(
        self,
        score: float,
        encoder: keras.Model,
        proxies: keras.Variable,
        *,
        min_delta: float = 0.0,
    ) -> None:
        """Counts an evaluation, and takes the snapshot if it is the best.

        A larger score is better, by more than `min_delta`.
        """
        # In the precision of the weight: an equal score is no improvement.
        score, best = float(np.float32(score)), scalar(self.best_score)
        # If the first score is NaN, the next one replaces it.
        if np.isfinite(best) and not score > best + min_delta:
            self.waited.assign_add(1)
            return
        variables = [*moving_variables(encoder), proxies]
        slots = [*self.best_encoder, self.best_proxies]
        for slot, variable in zip(slots, variables, strict=True):
            # A copy: JAX refuses to donate one buffer twice.
            slot.assign(ops.copy(variable))
        self.best_score.assign(score)
        self.waited.assign(0)

    def restore_best(self, encoder: keras.Model) -> None:
        """Sets the encoder to the best evaluation of this problem."""
        pairs = zip(moving_variables(encoder), self.best_encoder, strict=True)
        for variable, best in pairs:
            variable.assign(ops.copy(best))

    def end_problem(self) -> None:
        """Counts a converged problem as an improvement or not."""
        if scalar(self.best_score) > scalar(self.best_of_all):
            self.best_of_all.assign(scalar(self.best_score))
            self.barren_problems.assign(0)
        else:
            self.barren_problems.assign_add(1)

    def start_problem(self, covering_radius: float) -> None:
        """Resets the counters for the next problem."""
        self.best_score.assign(-np.inf)
        self.waited.assign(0)
        self.steps.assign(0)
        self.covering_radius.assign(covering_radius)
        self.is_warming_up.assign(0)
        self.is_started.assign(1)


def moving_variables(encoder: keras.Model) -> list:
    """Returns the variables that training moves, the trainable ones first.

    The others are the moving statistics of layers that are not frozen.
    """
    found = {id(v): v for v in encoder.trainable_variables}
    for layer in _leaves(encoder):
        if layer.trainable:
            found |= {id(v): v for v in layer.non_trainable_weights}
    return list(found.values())


def scalar(variable: keras.Variable) -> Any:
    """Returns the value of a scalar variable as an int or a float.

    `int(variable)` fails for a variable that `MirroredStrategy` has copied.
    """
    return ops.convert_to_numpy(variable).item()


def _leaves(layer):
    if not isinstance(layer, keras.Model):
        return [layer]
    return [leaf for part in layer.layers for leaf in _leaves(part)]


def _add_state(layer, name, dtype, initializer="zeros", shape=()):
    return layer.add_weight(
        name=name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        trainable=False,
        autocast=False,
    )


def _add_like(layer, name, variable):
    return _add_state(layer, name, variable.dtype, shape=variable.shape)
