"""What alternating problems leave in the learner's weights.

`AnchoredWeights` are the encoder's weights at the end of the last problem and
the pull towards them, `ProblemProgress` the best weights of this one and how
far it has come.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.ops.precision import at_least_float32
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
        squared = self._squared_distance(variables)
        return 0.5 * ops.cast(self.scale, squared.dtype) * squared

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
        return float(ops.sqrt(self._squared_distance(variables)))

    def _squared_distance(self, variables):
        """A scalar in the variables' precision, float32 at least."""
        self.check(variables)
        squares = [
            ops.sum(ops.square(at_least_float32(variable - anchor)))
            for variable, anchor in zip(variables, self.anchors, strict=True)
        ]
        dtype = squares[0].dtype if squares else "float32"
        return sum(squares, start=ops.zeros((), dtype))

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


@keras.saving.register_keras_serializable(package="keras_gsp")
class ProblemProgress(keras.layers.Layer):
    """Holds the best snapshot of a problem and its counters as weights.

    All of it is in non-trainable weights, so that every checkpoint of the
    learner has it and a killed run goes on in the middle of a problem.
    `keras_gsp.callbacks.ChanceConstrainedProgramming` reads and writes it.

    Args:
        **kwargs: `name` and other arguments of a Keras layer.

    Attributes:
        best_encoder: the encoder at the problem's best evaluation, one
            variable for each of `moving_variables(encoder)`.
        best_proxies: the proxies then.
        best_score: the score then, larger is better.
        best_of_all: best score of all problems that have ended.
        waited: evaluations since the best one.
        steps: steps of this problem.
        barren_problems: problems in a row that did not beat `best_of_all`.
        covering_radius: of the pool by the last problem's proxies and those
            this one began with.
        is_warming_up: 1 while pairs within the batch stand in for proxies.
        is_started: 1 after the first proxies were chosen.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs["dtype"] = "float32"
        super().__init__(trainable=False, **kwargs)

    def build_for(self, encoder: keras.Model, proxies: Tensor) -> None:
        """Creates a slot for each variable that training moves.

        Args:
            encoder: built Keras model.
            proxies: variable of the class proxies.
        """
        self.best_encoder = [
            self._add_like(f"best_encoder_{position}", variable)
            for position, variable in enumerate(moving_variables(encoder))
        ]
        self.best_proxies = self._add_like("best_proxies", proxies)
        lowest = keras.initializers.Constant(-np.inf)
        self.best_score = self._add_number("best_score", "float32", lowest)
        self.best_of_all = self._add_number("best_of_all", "float32", lowest)
        self.covering_radius = self._add_number("covering_radius", "float32")
        self.waited = self._add_number("waited", "int32")
        self.steps = self._add_number("steps", "int32")
        self.barren_problems = self._add_number("barren_problems", "int32")
        self.is_warming_up = self._add_number("is_warming_up", "int32")
        self.is_started = self._add_number("is_started", "int32")
        self.built = True

    def record(
        self,
        score: Any,
        encoder: keras.Model,
        proxies: Tensor,
        *,
        min_delta: float = 0.0,
    ) -> None:
        """Notes an evaluation, and takes the snapshot if it is the best.

        Args:
            score: float, larger is better.
            encoder: the model the slots were made for.
            proxies: variable of the class proxies.
            min_delta: float, smallest change that counts as improvement.
        """
        # As it is stored: a score equal to the best one is none.
        score, best = np.float32(score), scalar(self.best_score)
        # A first evaluation that is NaN must not stay the best one for ever.
        if np.isfinite(best) and not score > best + min_delta:
            self.waited.assign_add(1)
            return
        variables = [*moving_variables(encoder), proxies]
        slots = [*self.best_encoder, self.best_proxies]
        for slot, variable in zip(slots, variables, strict=True):
            # A copy: JAX would refuse to give one buffer away twice.
            slot.assign(ops.copy(variable))
        self.best_score.assign(score)
        self.waited.assign(0)

    def restore_best(self, encoder: keras.Model) -> None:
        """Brings the encoder back to the best evaluation of this problem."""
        pairs = zip(moving_variables(encoder), self.best_encoder, strict=True)
        for variable, best in pairs:
            variable.assign(ops.copy(best))

    def end_problem(self) -> None:
        """Counts a problem that has converged as fruitful or barren."""
        if scalar(self.best_score) > scalar(self.best_of_all):
            self.best_of_all.assign(scalar(self.best_score))
            self.barren_problems.assign(0)
        else:
            self.barren_problems.assign_add(1)

    def start_problem(self, covering_radius: Any) -> None:
        """Sets the counters for the next problem.

        Args:
            covering_radius: float, of the pool by old and new proxies.
        """
        self.best_score.assign(-np.inf)
        self.waited.assign(0)
        self.steps.assign(0)
        self.covering_radius.assign(covering_radius)
        self.is_warming_up.assign(0)
        self.is_started.assign(1)

    def _add_like(self, name, variable):
        return self.add_weight(
            name=name,
            shape=variable.shape,
            dtype=variable.dtype,
            initializer="zeros",
            trainable=False,
            autocast=False,
        )

    def _add_number(self, name, dtype, initializer="zeros"):
        return self.add_weight(
            name=name,
            shape=(),
            dtype=dtype,
            initializer=initializer,
            trainable=False,
            autocast=False,
        )


def moving_variables(encoder: keras.Model) -> Any:
    """Variables that training moves, the trainable ones first.

    Those are the trainable ones and the moving statistics of layers that are
    not frozen.

    Args:
        encoder: built Keras model.
    """
    found = {id(v): v for v in encoder.trainable_variables}
    for layer in _leaves(encoder):
        if layer.trainable:
            found |= {id(v): v for v in layer.non_trainable_weights}
    return list(found.values())


def _leaves(layer):
    if not isinstance(layer, keras.Model):
        return [layer]
    return [leaf for part in layer.layers for leaf in _leaves(part)]


def scalar(variable: Tensor) -> Any:
    """Returns the value of a scalar variable as an int or a float.

    `int(variable)` fails for a variable that `MirroredStrategy` has copied to
    every replica.
    """
    return ops.convert_to_numpy(variable).item()
