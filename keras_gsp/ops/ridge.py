"""Ridge regression from histograms, each half predicted by the other.

Symbols: Z `histograms` (here one a row), Y `targets`, eps `ridge`,
K = Z Z' `similarities`, M (1 where two samples share a half) `same_half`.
"""

from keras import ops

from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.labels import check_same_length
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.tensor import Tensor


def cross_half_prediction(
    histograms: Tensor, targets: Tensor, first_half: Tensor, *, ridge: float
) -> Tensor:
    """Predicts the targets of each half with a model fitted to the other.

    On each half k the ridge regression
    `V_k = argmin_V |V Z_k - Y_k|^2 + eps |V|^2` maps histograms to targets,
    and the samples of the other half get `V_k Z`. The regression matrix is
    never built. In the dual form, with one histogram a row,

    `Z_1 V_2' = Z_1 Z_2' (Z_2 Z_2' + eps I)^-1 Y_2`,

    so the targets are mixed by `W = (M * K + eps I)^-1 ((1 - M) * K)`, of
    size batch x batch. `M * K` is block-diagonal: one Cholesky factorisation
    serves both halves, whatever their sizes, with static shapes. The cost is
    batch^2 (num_prototypes + size) + batch^3, below that of the primal form
    as long as the batch is not larger than the number of prototypes.

    With histograms that sum to 1 the condition number is at most
    1 + batch / eps, so float32 is safe. Gradients flow to histograms and
    targets.

    Args:
        histograms: (batch, num_prototypes).
        targets: (batch, size).
        first_half: (batch,), boolean, which samples are in the first half.
        ridge: eps, float, positive; counted once for each half.

    Returns:
        (batch, size), float32 or float64. When one half is empty nothing is
        fitted to it, and the samples of the other get zeros.

    Raises:
        ValueError: `ridge` not positive, or lengths that differ.

    Example:
    ```python
    rng = np.random.default_rng(0)
    histograms = rng.dirichlet(np.ones(16), size=6)
    predicted = gsp.ops.cross_half_prediction(
        histograms,
        rng.normal(size=(6, 4)),
        np.array([True, True, True, False, False, False]),
        ridge=0.05,
    )
    ```

    Reference:
        XML, (2.5) and the text before (2.10); GSP, section 4.3 and
        algorithm 4. The comment of algorithm 4 names the wrong half, its
        formula is right.
    """
    check_positive(ridge=ridge)
    histograms = at_least_float32(histograms)
    targets = ops.cast(targets, histograms.dtype)
    check_same_length(histograms, targets, ("histograms", "targets"))
    check_same_length(first_half, targets, ("first_half", "targets"))
    first_half = ops.convert_to_tensor(first_half)
    same_half = ops.cast(
        first_half[:, None] == first_half[None, :], histograms.dtype
    )
    similarities = ops.matmul(histograms, ops.transpose(histograms))
    identity = ops.eye(ops.shape(histograms)[0], dtype=histograms.dtype)
    mixing = solve_positive_definite(
        same_half * similarities + ridge * identity,
        (1.0 - same_half) * similarities,
    )
    return ops.matmul(ops.transpose(mixing), targets)


def solve_positive_definite(matrix: Tensor, right_hand_side: Tensor) -> Tensor:
    """Solves `matrix @ x = right_hand_side` by a Cholesky factorisation.

    Args:
        matrix: (..., size, size), symmetric and positive definite.
        right_hand_side: (..., size, columns).

    Returns:
        (..., size, columns).
    """
    factor = ops.cholesky(matrix)
    half_solved = ops.solve_triangular(factor, right_hand_side, lower=True)
    return ops.solve_triangular(
        ops.swapaxes(factor, -1, -2), half_solved, lower=False
    )
