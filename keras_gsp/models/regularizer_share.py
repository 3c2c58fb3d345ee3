"""The share that a regularizer has in the gradient of a step."""

from collections.abc import Iterable
from itertools import compress
from typing import Any

import keras
from keras import ops

from keras_gsp._tensor import Tensor


def measured_weights(encoder: keras.Model) -> list:
    """Returns the weights of `"projection"`, or all without such a layer."""
    for layer in getattr(encoder, "layers", ()):
        if layer.name == "projection" and layer.trainable_variables:
            return layer.trainable_variables
    return encoder.trainable_variables


def gradient_share(metric: Iterable, regularizer: Iterable) -> Tensor:
    """Returns `|r| / (|m| + |r|)` of two lists of gradients, 0 for 0 / 0."""
    metric_norm, norm = _norm(metric), _norm(regularizer)
    total = metric_norm + norm
    return norm / ops.where(total == 0.0, 1.0, total)


def metrics_with_share_on_jax(learner: Any, state: tuple, data: Any) -> list:
    """Returns the metrics' variables, updated with the share of this step.

    Keras's JAX step returns no gradients, so the forward pass is repeated
    here; XLA merges the two. Arguments are those of `train_step`.
    """
    import jax

    trainable, non_trainable, _, metrics = state
    x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
    measured = {id(variable) for variable in measured_weights(learner.encoder)}
    is_measured = [id(v) in measured for v in learner.trainable_variables]

    def parts(values):
        outputs, after = learner.stateless_call(
            values, non_trainable, x, training=True
        )
        mapping = [*zip(learner.trainable_variables, values, strict=True)]
        mapping += zip(learner.non_trainable_variables, after, strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            loss = learner.step_loss(y, outputs)
        return loss.metric, loss.regularizer

    (metric, _), pull_back = jax.vjp(parts, trainable)
    one, zero = ops.ones_like(metric), ops.zeros_like(metric)
    # XLA computes those that are used.
    share = gradient_share(
        compress(pull_back((one, zero))[0], is_measured),
        compress(pull_back((zero, one))[0], is_measured),
    )
    mapping = list(zip(learner.metrics_variables, metrics, strict=True))
    with keras.StatelessScope(state_mapping=mapping) as scope:
        learner.regularizer_share.update_state(share)
    return [scope.get_current_value(v) for v in learner.metrics_variables]


def _norm(gradients):
    squares = [
        ops.sum(ops.square(ops.cast(gradient, "float32")))
        for gradient in gradients
        if gradient is not None
    ]
    return ops.sqrt(sum(squares, ops.zeros(())))
