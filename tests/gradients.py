"""Gradients of a scalar function, on whichever backend runs the tests."""

import keras
import numpy as np


def gradients(function, *arrays):
    """Returns d function / d array for each array, as NumPy arrays."""
    tensors = [keras.ops.convert_to_tensor(array) for array in arrays]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            for tensor in tensors:
                tape.watch(tensor)
            value = function(*tensors)
        return [np.asarray(g) for g in tape.gradient(value, tensors)]
    import jax

    # Compiled: JAX would compile each operation by itself.
    gradient = jax.jit(jax.grad(function, argnums=tuple(range(len(tensors)))))
    found = gradient(*tensors)
    return [np.asarray(g) for g in found]


def central_differences(function, *arrays, step=1e-6):
    """Returns the same by central differences, entry by entry."""
    found = []
    for position, array in enumerate(arrays):
        slopes = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = [np.array(a, dtype=a.dtype) for a in arrays]
                moved[position][index] += sign * step
                ends.append(float(function(*moved)))
            slopes[index] = (ends[0] - ends[1]) / (2.0 * step)
        found.append(slopes)
    return found
