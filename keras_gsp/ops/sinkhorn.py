"""Entropic transport between two given marginals, by Sinkhorn's scaling.

Symbols: S `scores` (the negative costs times the inverse temperature), p
`row_masses`, q `column_masses`, u and v the logarithms of the scalings,
P = exp(u + S + v) the `plan`.
"""

from keras import ops

from keras_gsp._checks import check_count
from keras_gsp._tensor import Tensor


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

    Scores and plan are (batch, rows, columns), the masses broadcast to
    (batch, rows) and (batch, columns); -1e9 is no mass. Columns sum to their
    masses, rows converge to theirs. In the log domain no score over- or
    underflows. The gradient is that of the iterations.

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
