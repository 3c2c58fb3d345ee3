"""Functions and trainings compiled by XLA, on whichever backend runs."""

import keras


def compiled(function):
    """Returns the function under `jit_compile=True` or `jax.jit`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    import jax

    return jax.jit(function)


def trains_compiled(jit_compile):
    """`jit_compile` of a training; JAX without it would take steps op by op."""
    return jit_compile or keras.backend.backend() == "jax"
