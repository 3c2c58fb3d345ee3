"""Least-squares prototypes of a stream of batches, updated recursively.

Symbols: Z `histograms` (rows), Y `targets` (rows), V `prototypes` (rows),
R `information`, alpha `memory`, beta `ridge`.
"""

from keras import ops

from keras_gsp.ops.arguments import check_interval, check_positive
from keras_gsp.ops.labels import check_same_length
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.ridge import solve_positive_definite
from keras_gsp.ops.tensor import Tensor


def recursive_prototypes(
    histograms: Tensor,
    targets: Tensor,
    previous: Tensor | None = None,
    *,
    ridge: float,
    memory: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Updates least-squares prototypes with one more batch.

    After batches 1..K the prototypes are the ridge fit to the whole stream,
    with the weight of past batches multiplied by `memory` at each step:

    `V_K = argmin_V sum_k alpha^(K-k) |Z_k V - Y_k|^2 + beta |V|^2`.

    The update keeps one matrix, starting at `R_0 = beta I`, `V_0 = 0`:

    `R_K = alpha R_(K-1) + Z_K' Z_K + (1 - alpha) beta I`
    `V_K = R_K^-1 (alpha R_(K-1) V_(K-1) + Z_K' Y_K)`

    This is the paper's (2.7), `V_K = W V_(K-1) + (I - W) S^-1 Z_K' Y_K` with
    `S = Z_K' Z_K + (1 - alpha) beta I`, with two corrections: the printed `W`
    lacks a factor alpha (it is `R_K^-1 alpha R_(K-1)`), and `S`, singular at
    alpha = 1 with fewer samples than prototypes, is not inverted, because
    `(I - W) S^-1 = R_K^-1`.

    Args:
        histograms: (batch, num_prototypes).
        targets: (batch, size).
        previous: the result of the last call, `None` for the first batch.
        ridge: beta, float, positive, the same in every call.
        memory: alpha, in (0, 1]. Default 1: every batch counts the same.

    Returns:
        (prototypes, information): (num_prototypes, size) and
        (num_prototypes, num_prototypes), float32 or float64.

    Raises:
        ValueError: `ridge` not positive, `memory` outside (0, 1], or lengths
            that differ.

    Example:
    ```python
    import numpy as np
    import keras_gsp as gsp

    rng = np.random.default_rng(0)
    state = None
    for _ in range(3):
        histograms = rng.dirichlet(np.ones(8), size=4)
        targets = rng.normal(size=(4, 2))
        state = gsp.ops.recursive_prototypes(
            histograms, targets, state, ridge=0.05, memory=0.9
        )
    prototypes, information = state
    ```

    Reference:
        XML, (2.5)-(2.7). (2.9) is the case of two batches and alpha = 1.
    """
    check_positive(ridge=ridge)
    check_interval("(0, 1]", memory=memory)
    histograms = at_least_float32(histograms)
    targets = ops.cast(targets, histograms.dtype)
    check_same_length(histograms, targets, ("histograms", "targets"))
    transposed = ops.transpose(histograms)
    identity = ops.eye(histograms.shape[-1], dtype=histograms.dtype)
    weighted = ops.matmul(transposed, targets)
    if previous is None:
        past = ridge * identity
    else:
        prototypes, past = (
            ops.cast(part, histograms.dtype) for part in previous
        )
        weighted = weighted + memory * ops.matmul(past, prototypes)
    information = (
        memory * past
        + ops.matmul(transposed, histograms)
        + (1.0 - memory) * ridge * identity
    )
    return solve_positive_definite(information, weighted), information
