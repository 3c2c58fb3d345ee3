"""Ranks in a list of similarities, made smooth, in memory of one matrix."""

from typing import Any

from keras import ops

from keras_gsp.ops.pairs import chosen_entries, fold_positives


def soft_ranks(
    similarities: Any, counted: Any, targets: Any, temperature: float
) -> Any:
    r"""Returns the smooth rank of each target among the counted references.

    .. math:: r_{ap} = 1 + \sum_{j \neq p} c_{aj}\,
        \sigma\Big(\frac{s_{aj} - s_{ap}}{T}\Big)

    The step function in place of the sigmoid would give the rank itself, 1
    for the most similar. All pairs (p, j) of an anchor are compared, target
    by target: no tensor has more entries than `similarities`. So has the
    gradient, which goes through the targets a second time (a
    `keras.ops.custom_gradient`): with g the upstream gradient and
    :math:`w_{pj} = c_{aj} \sigma' / T`

    .. math:: \frac{\partial}{\partial s_{aj}} = \sum_p g_p w_{pj}
        - g_j \sum_i w_{ji}.

    Args:
        similarities: (batch, references), float32 or float64.
        counted: (batch, references), how often each reference counts.
        targets: boolean (batch, references), whose ranks are asked for.
        temperature: similarity over which the step is spread, positive.

    Returns:
        (batch, references), the ranks at the targets, 0 elsewhere.
    """

    @ops.custom_gradient
    def ranks_of(similarities, counted, targets):
        def steps(is_chosen):
            here = chosen_entries(similarities, is_chosen)
            others = ops.where(is_chosen, 0.0, counted)
            return others, ops.sigmoid((similarities - here) / temperature)

        def place(is_chosen, ranks):
            others, above = steps(is_chosen)
            rank = 1.0 + ops.sum(others * above, axis=1, keepdims=True)
            return ops.where(is_chosen, rank, ranks)

        is_target = targets > 0.0
        nothing = ops.zeros_like(similarities)
        ranks = fold_positives(is_target, place, nothing)

        def gradient(*inputs, upstream=None):
            if upstream is None:
                (upstream,) = inputs

            def pull(is_chosen, slopes):
                others, above = steps(is_chosen)
                force = chosen_entries(upstream, is_chosen) / temperature
                force = force * others * above * (1.0 - above)
                back = ops.sum(force, axis=1, keepdims=True)
                return slopes + force - ops.where(is_chosen, back, 0.0)

            slopes = fold_positives(is_target, pull, nothing)
            return slopes, ops.zeros_like(counted), ops.zeros_like(targets)

        return ranks, gradient

    counted = ops.cast(counted, similarities.dtype)
    # A float: a boolean would have a gradient of no dtype on JAX.
    return ranks_of(
        similarities, counted, ops.cast(targets, similarities.dtype)
    )
