"""Differentiable ranks in a list of similarities, with O(n^2) memory."""

from keras import ops

from keras_gsp._tensor import Tensor
from keras_gsp.ops.pairs import chosen_entries, fold_positives


def soft_ranks(
    similarities: Tensor, counted: Tensor, targets: Tensor, temperature: float
) -> Tensor:
    r"""Returns the smooth rank of each target among the counted references.

    .. math:: r_{ap} = 1 + \sum_{j \neq p} c_{aj}\,
        \sigma\Big(\frac{s_{aj} - s_{ap}}{T}\Big)

    With the step function instead of the sigmoid this is the rank, 1 for the
    most similar. The targets are processed one at a time, so that no tensor
    has more entries than `similarities`. The gradient loops over them again:
    with g the upstream gradient and :math:`w_{pj} = c_{aj} \sigma' / T`

    .. math:: \frac{\partial}{\partial s_{aj}} = \sum_p g_p w_{pj}
        - g_j \sum_i w_{ji}.

    All are (batch, references): `counted` are the weights c, `targets`
    (boolean) the references to rank; the result is 0 at others.
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
