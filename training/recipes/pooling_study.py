"""Every pooling beside the others: the cells of the studies `poolings...`."""

from dataclasses import replace
from typing import get_args

from training.recipes.recipe import Pooling, Recipe

# Average pooling first: all others are compared with it; then the papers'
# own, then the others by name.
POOLINGS: tuple[str, ...] = get_args(Pooling)
LOSSES = ("c2", "proxy-nca")


def pooling_cells(base: Recipe) -> dict[tuple[str, str], Recipe]:
    """(loss, pooling) -> recipe, pooling by pooling.

    Args:
        base: What all cells share. Proxy losses take the papers' temperature
            of the transport, 0.5 instead of 5, a tenth of the base's.
    """
    temperatures = dict.fromkeys(LOSSES, base.inverse_temperature)
    temperatures["proxy-nca"] = base.inverse_temperature / 10.0
    return {
        (loss, word): replace(
            base,
            loss=loss,
            pooling=word,
            inverse_temperature=temperatures[loss],
        )
        for word in POOLINGS
        for loss in LOSSES
    }
