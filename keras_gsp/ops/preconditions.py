"""Checks on the values of tensors: at once when known, else in the graph."""

from typing import Any

import keras
from keras import ops

from keras_gsp.ops.tensor import Tensor


def concrete_value(tensor: Tensor) -> Tensor:
    """Returns a tensor as NumPy array, or `None` while it is being traced.

    Args:
        tensor: tensor, array or number.

    Returns:
        NumPy array, or `None` inside a compiled function, where values do
        not exist yet.
    """
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
    value: Any, condition: Any, expectation: str, **received: Any
) -> Any:
    """Returns a value once a condition holds, else raises `ValueError`.

    In a TensorFlow graph the condition becomes an assertion that raises
    `tf.errors.InvalidArgumentError` when it runs; whatever is computed from
    the value returned waits for it, and cannot fail first. Compiled by XLA
    (`jit_compile=True`, JAX) nothing can be raised: there the check is left
    out, and the caller must return finite values all the same.

    Args:
        value: tensor that only makes sense if the condition holds.
        condition: boolean scalar tensor.
        expectation: the sentence "`x` must be ...".
        **received: by name, the tensors or numbers to show.

    Returns:
        The value.

    Raises:
        ValueError: the condition is known and does not hold.
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
