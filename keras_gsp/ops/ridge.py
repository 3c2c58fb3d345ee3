"""Ridge regression from histograms; each half predicts the other.

Symbols: Z `histograms` (here one a row), Y `targets`, eps `ridge`,
K = Z Z' `similarities`, M `same_half` (1 where two samples share a half).
"""

from keras import ops

from keras_gsp._checks import check_positive, check_same_size
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import at_least_float32, full_matmul


def cross_half_prediction(
    histograms: Tensor, targets: Tensor, first_half: Tensor, *, ridge: float
) -> Tensor:
    """Predicts the targets of each half by the other half's model.

    On each half k the ridge regression
    `V_k = argmin_V |V Z_k - Y_k|^2 + eps |V|^2` maps histograms to targets,
    and the samples of the other half get `V_k Z`; zeros if it is empty. In the
    dual form, with one histogram per row,

    `Z_1 V_2' = Z_1 Z_2' (Z_2 Z_2' + eps I)^-1 Y_2`,

    so `W = (M * K + eps I)^-1 ((1 - M) * K)` mixes the targets. `M * K` is
    block-diagonal: one Cholesky factorization of size batch x batch solves
    both halves, with static shapes. For histograms that sum to 1 its
    condition number is at most 1 + batch / eps, so float32 is accurate.

    Reference:
        XML, (2.5) and the text before (2.10); GSP, section 4.3 and
        algorithm 4, whose comment names the wrong half (the formula is right).
    """
    check_positive(ridge=ridge)
    histograms = at_least_float32(histograms)
    targets = ops.cast(targets, histograms.dtype)
    check_same_size(histograms, targets, ("histograms", "targets"))
    check_same_size(first_half, targets, ("first_half", "targets"))
    first_half = ops.convert_to_tensor(first_half)
    same_half = ops.cast(
        first_half[:, None] == first_half[None, :], histograms.dtype
    )
    similarities = full_matmul(histograms, ops.transpose(histograms))
    identity = ops.eye(ops.shape(histograms)[0], dtype=histograms.dtype)
    mixing = solve_positive_definite(
        same_half * similarities + ridge * identity,
        (1.0 - same_half) * similarities,
    )
    return full_matmul(ops.transpose(mixing), targets)


def solve_positive_definite(matrix: Tensor, right_hand_side: Tensor) -> Tensor:
    """Solves `matrix @ x = right_hand_side` by a Cholesky factorization.

    For an upstream gradient g of x, the right-hand side receives
    `h = matrix^-1 g` and the matrix `-h x'`: solves and products in full
    precision, where automatic derivatives of a factorization have others.
    """

    @ops.custom_gradient
    def solve(matrix, right_hand_side):
        factor = ops.cholesky(matrix)
        solution = _solved(factor, right_hand_side)

        def gradient(*inputs, upstream=None):
            if upstream is None:
                (upstream,) = inputs
            pulled = _solved(factor, upstream)
            turned = ops.swapaxes(solution, -1, -2)
            return -full_matmul(pulled, turned), pulled

        return solution, gradient

    return solve(matrix, right_hand_side)


def _solved(factor, right_hand_side):
    half_solved = ops.solve_triangular(factor, right_hand_side, lower=True)
    return ops.solve_triangular(
        ops.swapaxes(factor, -1, -2), half_solved, lower=False
    )
