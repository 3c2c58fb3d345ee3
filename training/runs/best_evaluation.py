"""Which evaluation of a run its weights come from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def best_evaluation(
    history: Sequence[Mapping[str, Any]], chosen_by: str
) -> Mapping[str, Any]:
    """The line of a history whose weights were kept: the first of the best.

    Args:
        history: What `RunDirectory.read_history` returned, not empty.
        chosen_by: The recipe's measure on the validation classes.
    """

    def score(line):
        found = line.get(f"val_{chosen_by}", -np.inf)
        return found if np.isfinite(found) else -np.inf

    return max(history, key=score)


def solved_problems(
    history: Sequence[Mapping[str, Any]], chosen_by: str
) -> dict[str, int]:
    """How far chance constrained programming alternated.

    Args:
        history: Of a run whose proxies are sampled.
        chosen_by: As `best_evaluation`.

    Returns:
        `num_problems`, begun until the end of training, and
        `scored_problem`, that of the weights that were kept: 1 is a single
        set of proxies, however many came after it.
    """
    best = best_evaluation(history, chosen_by)
    return {
        "num_problems": int(max(h.get("ccp_problem", 0) for h in history)),
        "scored_problem": int(best.get("ccp_problem", 0)),
    }
