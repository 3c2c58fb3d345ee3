"""Functions and trainings compiled by XLA, and marks for backends."""

import keras
import pytest

# JAX compiles every operation for every shape. Values and gradients are tested
# on it; contracts that do not depend on the backend run on the others.
not_on_jax = pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="tested on TensorFlow and PyTorch"
)


def slow_on(*backends):
    """Marks a test as slow on backends where it takes ten seconds or more."""
    is_slow = keras.backend.backend() in backends
    return pytest.mark.slow if is_slow else lambda test: test


# Graphs and exports of TensorFlow, and float64 that Keras rounds on PyTorch.
on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tested on TensorFlow"
)


def first_on_jax(rows):
    """Returns a table's rows; on JAX, which compiles for each, the first."""
    return rows[:1] if keras.backend.backend() == "jax" else rows


# PyTorch compiles nothing, and what is known is checked there.
under_xla = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="nothing is compiled"
)


def compiled(function):
    """Returns the function under `jit_compile=True` or `jax.jit`.

    On PyTorch the function itself: nothing is compiled there.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False, jit_compile=True)
    if keras.backend.backend() == "torch":
        return function
    import jax

    return jax.jit(function)
