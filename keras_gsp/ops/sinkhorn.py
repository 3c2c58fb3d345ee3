"""Entropic transport between two given marginals, by Sinkhorn's scaling.

Symbols: S `scores` (the negative costs times the inverse temperature), p
`row_masses`, q `column_masses`, u and v the logarithms of the scalings,
P = exp(u + S + v) the `plan`.
"""

from keras import ops

from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.tensor import Tensor


def sinkhorn_plan(
    scores: Tensor,
    log_row_masses: Tensor,
    log_column_masses: Tensor,
    *,
    num_iterations: int,
) -> Tensor:
    r"""Computes the entropic transport plan of scores with given marginals.

    .. math:: u_i = \log p_i - \log \sum_j e^{S_{ij} + v_j}, \quad
              v_j = \log q_j - \log \sum_i e^{S_{ij} + u_i}

    Scales rows and columns in turn, in the log domain, so that no score over-
    or underflows. The number of iterations is fixed; the gradient is that of
    the iterations.

    Args:
        scores: (batch, rows, columns), float32 or float64.
        log_row_masses: broadcasts to (batch, rows).
        log_column_masses: broadcasts to (batch, columns); -1e9 for a column
            without mass.
        num_iterations: number of row and column scalings, at least 1.

    Returns:
        (batch, rows, columns), the plan. Its columns sum to their masses up
        to rounding; its rows converge to theirs with more iterations.

    Raises:
        ValueError: `num_iterations` below 1.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    plan = gsp.ops.sinkhorn_plan(
        np.array([[[2.0, 0.0], [0.0, 2.0]]], "float32"),
        np.log([[0.5, 0.5]]),
        np.log([[0.5, 0.5]]),
        num_iterations=5,
    )
    assert np.allclose(np.sum(plan, axis=1), 0.5)
    ```

    Reference:
        Sinkhorn Distances: Lightspeed Computation of Optimal Transport.
    """
    check_count(num_iterations=num_iterations)
    scores = ops.convert_to_tensor(scores)
    log_rows = ops.cast(log_row_masses, scores.dtype)[..., :, None]
    log_columns = ops.cast(log_column_masses, scores.dtype)[..., None, :]
    # Start from the column masses, not from ones: a column without mass must
    # not enter the first row scaling. Equal masses cancel in it.
    scaled = scores + log_columns
    for _ in range(num_iterations):
        for logs, axis in ((log_rows, -1), (log_columns, -2)):
            total = ops.logsumexp(scaled, axis=axis, keepdims=True)
            scaled = scaled + logs - total
    return ops.exp(scaled)
