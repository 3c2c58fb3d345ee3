"""Gradients against central differences along random directions."""

import numpy as np

from tests.gradients import gradients


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
