"""Gradients of a scalar function on any backend, and their checks."""

import contextlib

import keras
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def values_without_a_tape():
    """Lets NumPy read what PyTorch computes; `gradients` records a tape."""
    scope = contextlib.nullcontext()
    if keras.backend.backend() == "torch":
        import torch

        scope = torch.no_grad()
    with scope:
        yield


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
    if keras.backend.backend() == "torch":
        import torch

        with torch.enable_grad():
            tensors = [tensor.detach().requires_grad_() for tensor in tensors]
            value = function(*tensors)
        found = torch.autograd.grad(value, tensors, allow_unused=True)
        return [
            np.zeros(tensor.shape, "float32") if g is None else g.cpu().numpy()
            for g, tensor in zip(found, tensors, strict=True)
        ]
    import jax

    # Compiled: JAX would compile each operation by itself.
    gradient = jax.jit(jax.grad(function, argnums=tuple(range(len(tensors)))))
    found = gradient(*tensors)
    return [np.asarray(g) for g in found]


def weighted_sum(tensor, weights):
    """A loss of these slopes; `ops.multiply` rounds float64 on PyTorch."""
    return keras.ops.sum(tensor * keras.ops.convert_to_tensor(weights))


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


def slope_errors(function, *arrays, num_directions=3, step=1e-6):
    """Returns the largest error of a gradient's slope, relative to it.

    A wrong gradient has a wrong slope along almost every direction, and a
    direction costs two calls where an entry-wise check costs two an entry.

    Args:
        function: scalar function of the arrays, smooth around them.
        *arrays: float64.
        num_directions: directions tried, all arrays moving at once.
        step: length of a step either way.
    """
    found = gradients(function, *arrays)
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(num_directions):
        moves = [rng.normal(size=array.shape) for array in arrays]
        slope = sum(
            np.sum(gradient * move)
            for gradient, move in zip(found, moves, strict=True)
        )
        ahead, behind = (
            float(
                function(
                    *(
                        array + sign * step * move
                        for array, move in zip(arrays, moves, strict=True)
                    )
                )
            )
            for sign in (1.0, -1.0)
        )
        difference = (ahead - behind) / (2.0 * step)
        errors.append(abs(slope - difference) / abs(difference))
    return max(errors)
