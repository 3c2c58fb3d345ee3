"""The paper's solver: a fixed number of alternating projections.

Algorithm 1 scales one number t until the plan moves the wanted mass. In the
log domain, with the symbols of `keras_gsp.ops.transport`, a round is
`tau <- tau + log r - log(mean_j sigmoid(b_j + tau))`, tau = log t. The
package solves the problem exactly; experiments compare it with this solver.
"""

import math
from typing import Any

from keras import ops

import keras_gsp as gsp
from keras_gsp.layers.pooling.feature_pooling import flat_features
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.transport import BallTransport


def iterated_transport(
    costs: Any,
    *,
    transport_ratio: float,
    inverse_temperature: float,
    num_rounds: int,
) -> Any:
    """Partial transport with the paper's iteration, for autodiff.

    Arguments and results are those of `gsp.ops.partial_transport`; exact only
    when the iteration has converged.
    """
    scaled = -inverse_temperature * costs
    log_affinities = ops.logsumexp(scaled, axis=-2)
    assignment = ops.softmax(scaled, axis=-2)
    # log t; the paper starts at t = 1.
    threshold = ops.zeros_like(log_affinities[..., :1])
    for _ in range(num_rounds):
        chosen = ops.sigmoid(log_affinities + threshold)
        threshold = threshold + (
            math.log(transport_ratio)
            - ops.log(ops.mean(chosen, axis=-1, keepdims=True))
        )
    logits, count = log_affinities + threshold, costs.shape[-1]
    plan = assignment * ops.sigmoid(logits)[..., None, :] / count
    return ops.sigmoid(-logits) / count, plan


def iterated_transport_in_closed_form(costs: Any, **options: Any) -> Any:
    """The same iteration with the paper's gradient instead of autodiff.

    Proposition 4.2, as corrected in `partial_transport`, at the last iterate:
    exact once the iteration has converged, in memory that does not grow with
    the rounds. Arguments are those of `iterated_transport`.

    Returns:
        (..., 1 + num_prototypes, num_features): residual, then plan. One
        tensor, because `keras.ops.custom_gradient` passes several upstream
        gradients differently on each backend.
    """

    @ops.custom_gradient
    def solve(costs):
        residual, plan = iterated_transport(costs, **options)

        def gradient(*inputs, upstream=None):
            if upstream is None:
                (upstream,) = inputs
            return _closed_form(
                upstream[..., 0, :],
                upstream[..., 1:, :],
                residual,
                plan,
                options["transport_ratio"],
                options["inverse_temperature"],
            )

        joined = ops.concatenate([residual[..., None, :], plan], axis=-2)
        return joined, gradient

    return solve(costs)


def _closed_form(
    residual_pull,
    plan_pull,
    residual,
    plan,
    transport_ratio,
    inverse_temperature,
):
    """dL/dc = -eps pi (g - n (q - eta rho / (1 - r - n rho' rho))).

    q_j = rho_j g_rho_j + s_j with s_j = sum_i pi_ij g_ij, and
    eta = n sum_j rho_j ((1 / n - rho_j) g_rho_j - s_j).
    """
    count = residual.shape[-1]
    moved = ops.sum(plan * plan_pull, axis=-2)
    q = residual * residual_pull + moved
    eta = count * ops.sum(
        residual * ((1.0 / count - residual) * residual_pull - moved),
        axis=-1,
        keepdims=True,
    )
    squares = ops.sum(ops.square(residual), axis=-1, keepdims=True)
    shared = q - eta * residual / (1.0 - transport_ratio - count * squares)
    pulls = plan_pull - count * ops.expand_dims(shared, -2)
    return -inverse_temperature * plan * pulls


class IteratedSumPooling(gsp.layers.GeneralizedSumPooling):
    """`GeneralizedSumPooling` with a fixed number of the paper's rounds.

    Args:
        *args: Of `GeneralizedSumPooling`.
        num_rounds: Rounds of the iteration; 100 in the paper.
        is_closed_form: Differentiate with the paper's closed form at the last
            iterate instead of through the rounds.
        **kwargs: Of `GeneralizedSumPooling`.
    """

    def __init__(
        self,
        *args: Any,
        num_rounds: int = 100,
        is_closed_form: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.num_rounds = num_rounds
        self.is_closed_form = is_closed_form

    def _transport(self, features, mask):
        """The transport of the iteration; no feature is masked here."""
        flat = flat_features(features)
        flat = ops.cast(flat, "float32")
        prototypes = ops.convert_to_tensor(self.prototypes)
        costs = pairwise_distances(unit_ball(prototypes), unit_ball(flat))
        options: dict[str, Any] = {
            "transport_ratio": self.transport_ratio,
            "inverse_temperature": self.inverse_temperature,
            "num_rounds": self.num_rounds,
        }
        if self.is_closed_form:
            joined = iterated_transport_in_closed_form(costs, **options)
            residual, plan = joined[..., 0, :], joined[..., 1:, :]
        else:
            residual, plan = iterated_transport(costs, **options)
        kept = 1.0 / flat.shape[1] - residual
        assignment = ops.swapaxes(plan / kept[..., None, :], -1, -2)
        weights = kept / self.transport_ratio
        return BallTransport(weights, residual, assignment)
