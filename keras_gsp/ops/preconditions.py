"""Checks on tensor values: at once when known, else in the graph."""

import keras
import numpy as np
from keras import ops

from keras_gsp.ops.tensor import Tensor


def concrete_value(tensor: Tensor) -> np.ndarray | None:
    """Returns a tensor as a NumPy array, or `None` while it is being traced."""
    if isinstance(tensor, bool | int | float | np.ndarray | np.generic):
        return np.asarray(tensor)
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        is_traced = not hasattr(tensor, "numpy")
    elif keras.backend.backend() == "jax":
        import jax

        is_traced = isinstance(tensor, jax.core.Tracer)
    else:
        is_traced = isinstance(tensor, keras.KerasTensor)
    return None if is_traced else ops.convert_to_numpy(tensor)


def require(
    value: Tensor, condition: Tensor, expectation: str, **received: Tensor
) -> Tensor:
    """Returns a value if a condition holds, else raises `ValueError`.

    A condition that is known, as one of shapes is, raises while tracing too. In
    a TensorFlow graph another becomes an assertion that raises
    `tf.errors.InvalidArgumentError` when the graph runs; what is computed
    from the returned value waits for it. Under XLA (`jit_compile=True`, JAX)
    it cannot be raised: the check is left out, and the caller must return
    finite values anyway. `expectation` is the sentence "`x` must be ...".
    """
    known = concrete_value(condition)
    if known is None and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        parts = [part for pair in received.items() for part in pair]
        check = tf.debugging.Assert(
            condition, [expectation, "Received:", *parts]
        )
        with tf.control_dependencies([check]):
            return tf.identity(value)
    if known is not None and not known:
        facts = ", ".join(
            f"{name}={concrete_value(value)}"
            for name, value in received.items()
        )
        raise ValueError(f"{expectation} Received: {facts}.")
    return value


def known_to_differ(one: tuple, other: tuple) -> bool:
    """Whether two shapes differ in rank or in a size that both know."""
    return len(one) != len(other) or any(
        None not in pair and pair[0] != pair[1]
        for pair in zip(one, other, strict=True)
    )
