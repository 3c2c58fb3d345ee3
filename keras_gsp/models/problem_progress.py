"""How far the current problem of alternating proxies has come."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.models.scalar import scalar
from keras_gsp.ops.tensor import Tensor


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
