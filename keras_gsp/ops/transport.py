"""Entropic partial transport from features to prototypes, in closed form.

Symbols: c `costs`, eps `inverse_temperature`, r `transport_ratio`,
b_j = logsumexp_i(-eps c_ij) `log_affinities`, a_ij = softmax_i(-eps c_ij),
t the threshold, p_j = sigmoid(b_j + t) the selection probability of feature
j, rho_j = (1 - p_j) / n its `residual`, pi_ij = a_ij p_j / n the `plan`.

The plan of the entropic problem (P2) depends on the costs only through a and
b, and on the marginals only through one number: the threshold at which the
probabilities average to the ratio. `threshold.py` finds it.
"""

import math
import numbers

from keras import ops

from keras_gsp.ops.precision import at_least_float32, smallest_normal
from keras_gsp.ops.threshold import selection_threshold, sigmoid_pair


def check_transport_ratio(transport_ratio):
    """Raises `ValueError` when a plain number is not in (0, 1]."""
    if isinstance(transport_ratio, numbers.Real) and not (
        0.0 < transport_ratio <= 1.0
    ):
        raise ValueError(
            "`transport_ratio` must be in (0, 1]. "
            f"Received: transport_ratio={transport_ratio}."
        )
    return transport_ratio


def check_inverse_temperature(inverse_temperature):
    """Raises `ValueError` when a plain number is not positive and finite."""
    if isinstance(inverse_temperature, numbers.Real) and not (
        0.0 < inverse_temperature < math.inf
    ):
        raise ValueError(
            "`inverse_temperature` must be positive and finite. "
            f"Received: inverse_temperature={inverse_temperature}."
        )
    return inverse_temperature


def selection_probabilities(
    log_affinities, transport_ratio, *, mask=None, spread_bound=None
):
    r"""Chooses features so that their probabilities average to the ratio.

    .. math:: p_j = \sigma(b_j + t), \quad
              \frac{1}{n} \sum_j p_j = r

    Args:
        log_affinities: (..., n), the b of the module's table.
        transport_ratio: fraction of features to choose, a number in (0, 1] or
            a tensor in (0, 1) that broadcasts to (..., 1) and gets a
            gradient. The number 1 chooses everything, without a solver.
        mask: optional boolean (..., n); a feature that is False has
            probability 0 and the ratio is taken of the others.
        spread_bound: upper bound on the difference between two affinities of
            a row, for example 2 eps for distances in the unit ball. Spares
            the sort that brackets the threshold when it is `None`.

    Returns:
        Two tensors (..., n), float32 or float64: p and, to full relative
        precision, 1 - p. Both are 0 where the mask is False.

    Raises:
        ValueError: a number outside (0, 1].
    """
    check_transport_ratio(transport_ratio)
    log_affinities = at_least_float32(log_affinities)
    if mask is None:
        kept = ops.ones_like(log_affinities)
    else:
        kept = ops.cast(mask, log_affinities.dtype)
        kept = ops.broadcast_to(kept, ops.shape(log_affinities))
    if isinstance(transport_ratio, numbers.Real) and transport_ratio == 1.0:
        # Exact; the NaN of a bad row still shows.
        chosen = kept + 0.0 * log_affinities
        return chosen, ops.zeros_like(chosen)
    logits = _selection_logits(
        log_affinities,
        _log_odds(transport_ratio, log_affinities),
        kept,
        spread_bound,
    )
    chosen, refused = sigmoid_pair(logits)
    return kept * chosen, kept * refused


def partial_transport(
    costs, *, transport_ratio, inverse_temperature, mask=None, cost_bound=None
):
    r"""Moves a fraction of the features' mass to prototypes, at least cost.

    Solves the entropic partial transport problem

    .. math:: \min_{\pi, \rho \ge 0} \sum_{ij} c_{ij} \pi_{ij}
        + \frac{1}{\varepsilon} \Big( \sum_{ij} \pi_{ij} \log \pi_{ij}
        + \sum_j \rho_j \log \rho_j \Big)
        \quad \text{s.t.} \quad \rho_j + \sum_i \pi_{ij} = \frac{1}{n},
        \quad \sum_{ij} \pi_{ij} = r

    exactly (to rounding), not by a number of alternating projections. The
    gradient is closed form and uses constant memory; it equals Proposition
    4.2 of the paper as corrected: :math:`\partial L / \partial c_{ij} =
    -\varepsilon \pi_{ij} (g_{ij} - n (q_j - \eta \rho_j / (1 - r - n
    \rho^\top \rho)))`. The printed form has :math:`q - \eta / (\cdot)`
    multiplied by :math:`\rho` as a whole, which is not the derivative.

    Args:
        costs: (..., num_prototypes, num_features), any finite numbers.
        transport_ratio: fraction of the mass that is moved, a number in
            (0, 1] or a tensor in (0, 1) that broadcasts to (..., 1) and gets
            a gradient.
        inverse_temperature: positive number or tensor; large is sharp.
        mask: optional boolean (..., num_features); a feature that is False
            has no mass, and the ratio is taken of the others.
        cost_bound: upper bound on the difference between two costs, where
            one is known (2 in the unit ball). It replaces a sort by a few
            bisections and must be a number; a bound that is too small gives
            wrong results.

    Returns:
        `residual` (..., num_features), the mass left behind, and `plan` (...,
        num_prototypes, num_features), the mass moved. Each feature's column
        sums to 1 / num_features with its residual, the plan to
        `transport_ratio`. float32, or float64 for float64 costs.

    Raises:
        ValueError: a ratio outside (0, 1], a temperature that is not
            positive, costs of rank below 2.

    Example:

    ```python
    costs = np.array([[0.0, 1.0, 2.0, 2.0]], "float32")
    residual, plan = gsp.ops.partial_transport(
        costs, transport_ratio=0.5, inverse_temperature=20.0
    )
    # The two cheapest of four features are moved, a quarter each.
    assert np.allclose(plan, [[0.25, 0.25, 0.0, 0.0]], atol=1e-3)
    assert np.allclose(residual, [0.0, 0.0, 0.25, 0.25], atol=1e-3)
    ```

    Reference:
        Generalized Sum Pooling for Metric Learning, (P2), Algorithm 1 and
        Proposition 4.2.
    """
    check_transport_ratio(transport_ratio)
    check_inverse_temperature(inverse_temperature)
    costs = at_least_float32(costs)
    if len(costs.shape) < 2:
        raise ValueError(
            "`costs` must have shape (..., num_prototypes, num_features). "
            f"Received: shape {tuple(costs.shape)}."
        )
    scale = ops.cast(
        ops.convert_to_tensor(inverse_temperature, dtype=costs.dtype),
        costs.dtype,
    )
    scaled = -scale * costs
    spread = None
    if cost_bound is not None:
        spread = float(cost_bound) * float(inverse_temperature)
    log_affinities, assignment = affinities(scaled, axis=-2)
    chosen, refused = selection_probabilities(
        log_affinities,
        transport_ratio,
        mask=mask,
        spread_bound=spread,
    )
    count = ops.cast(ops.shape(costs)[-1], costs.dtype)
    if mask is not None:
        count = ops.sum(ops.cast(mask, costs.dtype), axis=-1, keepdims=True)
        count = ops.maximum(count, 1.0)
    plan = assignment * ops.expand_dims(chosen / count, axis=-2)
    return refused / count, plan


def affinities(scaled, *, axis):
    """Log-sum-exp and softmax over prototypes, from one exponential.

    Args:
        scaled: negative costs times the inverse temperature.
        axis: the axis of the prototypes.

    Returns:
        b without that axis, and a, which sums to 1 along it to rounding even
        where b itself has lost digits to its size.
    """
    largest = ops.stop_gradient(ops.max(scaled, axis=axis, keepdims=True))
    shares = ops.exp(scaled - largest)
    total = ops.sum(shares, axis=axis, keepdims=True)
    return ops.squeeze(largest + ops.log(total), axis=axis), shares / total


def _log_odds(transport_ratio, log_affinities):
    """log(r / (1 - r)), shaped (..., 1) like a row of the affinities."""
    zero = ops.zeros_like(log_affinities[..., :1])
    if isinstance(transport_ratio, numbers.Real):
        # math, not ops: the constant keeps its digits in float64.
        ratio = float(transport_ratio)
        return zero + (math.log(ratio) - math.log1p(-ratio))
    ratio = ops.cast(transport_ratio, log_affinities.dtype)
    return zero + (ops.log(ratio) - ops.log1p(-ratio))


def _selection_logits(log_affinities, log_odds, kept, spread_bound):
    """The solver with its closed-form gradient (on TF `tf.custom_gradient`).

    x_j = b_j + t(b, L) with mean(sigmoid(x)) = r over the kept features.
    With w_j = p_j q_j, implicit differentiation gives dt/db_j = -w_j / sum(w)
    and dt/dL = n r (1 - r) / sum(w), hence, for an upstream gradient g,

        dL/db_j = g_j - w_j sum(g) / sum(w)
        dL/dL   = n r (1 - r) sum(g) / sum(w).

    sum(w) may underflow where the selection is sharp; g, which carries a
    factor w itself, underflows with it, and the quotient stays bounded.
    """

    @ops.custom_gradient
    def solve(log_affinities, log_odds, kept):
        is_empty = ops.sum(kept, axis=-1, keepdims=True) == 0.0
        counted = ops.where(is_empty, ops.ones_like(kept), kept)
        logits = selection_threshold(
            log_affinities, log_odds, counted, spread_bound=spread_bound
        )
        chosen, refused = sigmoid_pair(logits)
        slopes = counted * chosen * refused

        def gradient(*inputs, upstream=None):
            if upstream is None:
                (upstream,) = inputs
            total = ops.sum(slopes, axis=-1, keepdims=True)
            total = ops.maximum(total, smallest_normal(total))
            pull = ops.sum(counted * upstream, axis=-1, keepdims=True) / total
            above, below = sigmoid_pair(log_odds)
            count = ops.sum(counted, axis=-1, keepdims=True)
            return (
                counted * (upstream - slopes * pull),
                count * above * below * pull,
                ops.zeros_like(kept),
            )

        return logits, gradient

    return solve(log_affinities, log_odds, kept)
