"""The same function, compiled by XLA, on whichever backend runs the tests."""

import keras


def compiled(function):
    """Returns the function under `jit_compile=True` or `jax.jit`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    import jax

    return jax.jit(function)
