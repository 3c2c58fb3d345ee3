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
    r"""Scales rows and columns in turn; the columns hold exactly at the end.

    .. math:: u_i = \log p_i - \log \sum_j e^{S_{ij} + v_j}, \quad
              v_j = \log q_j - \log \sum_i e^{S_{ij} + u_i}

    In the logarithmic domain throughout: no score over- or underflows. The
    number of iterations is fixed, so that XLA compiles straight-line code,
    and the gradient is that of the iterations themselves.

    Args:
        scores: (batch, rows, columns), float32 or float64.
        log_row_masses: broadcasts to (batch, rows).
        log_column_masses: broadcasts to (batch, columns); -1e9 stands for a
            column without mass.
        num_iterations: rounds of one row and one column scaling, at least 1.

    Returns:
        (batch, rows, columns), the plan. Its columns sum to their masses to
        rounding, its rows the more exactly the more iterations.

    Raises:
        ValueError: a number of iterations below 1.

    Example:

    ```python
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
    # From the column masses, not from ones: a column without any must not be
    # seen by the first row scaling. Equal masses cancel in it.
    scaled = scores + log_columns
    for _ in range(num_iterations):
        scaled = scaled + log_rows - _log_sum(scaled, axis=-1)
        scaled = scaled + log_columns - _log_sum(scaled, axis=-2)
    return ops.exp(scaled)


def _log_sum(scores, axis):
    return ops.logsumexp(scores, axis=axis, keepdims=True)
