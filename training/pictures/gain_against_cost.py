"""What a pooling gains over average pooling, against what it costs."""

import json
from pathlib import Path

from training.pictures.palette import BLACK, BLUE, picture

OURS = "gsp"


def draw_gain_against_cost(
    path: Path,
    costs: Path,
    gains: Path,
    *,
    loss: str = "c2",
    case: int = 0,
    baseline: str = "gap",
) -> list[str]:
    """Draws one point for each pooling that has both numbers.

    Args:
        path: PNG file to write.
        costs: What `training.benchmarks.pooling --json` wrote.
        gains: A study's results, as the repository keeps them: its rows hold
            paired differences to the baseline with their 95 % interval.
        loss: Whose rows to draw.
        case: Which of the benchmark's tables, the first by default.
        baseline: The pooling that the others are compared with.

    Returns:
        The poolings drawn, the cheapest first.

    Raises:
        ValueError: no pooling has both numbers.
    """
    tables = json.loads(costs.read_text())["tables"]
    measured = tables[case]["numbers"]["poolings"]
    rows = json.loads(gains.read_text())["rows"]
    found = {
        row["method"]: row["differences"][baseline]
        for row in rows
        if row["loss"] == loss and row["differences"].get(baseline)
    }
    names = [name for name in measured if name in found]
    if not names:
        raise ValueError(
            f"{gains} must compare poolings of {costs} with {baseline} for "
            f"loss={loss}. Received: {', '.join(found) or 'no such row'}."
        )
    names.sort(key=lambda name: measured[name]["time"])
    with picture(path, figsize=(9, 6)) as axes:
        axis = axes[0, 0]
        axis.axhline(0.0, color=BLACK, linewidth=1)
        for name in names:
            _draw_point(axis, name, measured[name]["time"], found[name])
        axis.set_xscale("log")
        axis.set_xlabel("time, multiples of a 1x1 convolution")
        axis.set_ylabel(f"MAP@R gained over {baseline}, {loss}")
    return names


def _draw_point(axis, name, time, gain):
    mean = gain["difference"]
    colour = BLUE if name.startswith(OURS) else BLACK
    axis.errorbar(
        time,
        mean,
        yerr=[[mean - gain["low"]], [gain["high"] - mean]],
        fmt="o",
        color=colour,
        capsize=3,
    )
    axis.annotate(
        name,
        (time, mean),
        xytext=(6, 4),
        textcoords="offset points",
        fontsize=10,
        color=colour,
    )
