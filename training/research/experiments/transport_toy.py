"""Why is transport smoothed?

    python -m training.research.experiments.transport_toy

A 10 x 10 map of RGB features shows a red and a blue patch on a gray-green
background. The transport ratio of two prototypes, red and blue, is smaller
than the patches, as it may be in practice. The linear program (P1) then fills
pixel by pixel, cheapest first, and drops the rest of the object. The entropic
problem (P2) spreads over the whole object; with a large inverse temperature it
approaches the linear program. Figure 1 of GSP.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp.ops.normalization import unit_ball
from training.pictures.palette import picture
from training.research import report
from training.research.report import Table, over_runs, spread

SIDE = 10
RED, BLUE_PIXEL = (0.9, 0.1, 0.1), (0.1, 0.1, 0.9)
GROUND = (0.45, 0.6, 0.4)
PATCHES = ((RED, 1, 1, 4, 4), (BLUE_PIXEL, 5, 6, 4, 3))
"""Color, row, column, height, width: 28 of 100 pixels."""
RATIO, NOISE = 0.15, 0.08  # to pool; standard deviation of the colors
LINEAR = "linear program"
SHOWN = (1.0, 5.0, 20.0, 100.0, 1000.0)  # inverse temperatures


@dataclass(frozen=True, kw_only=True)
class Settings(report.ExperimentSettings):
    """The seeds of the noise."""

    SMALL = {"seeds": (0, 1)}


def toy_map(seed: int) -> tuple[Any, Any]:
    """Draws pixels (10, 10, 3) in [0, 1]; where the patches are, (10, 10)."""
    pixels = np.full((SIDE, SIDE, 3), GROUND)
    is_object = np.zeros((SIDE, SIDE), bool)
    for color, row, column, height, width in PATCHES:
        patch = np.s_[row : row + height, column : column + width]
        pixels[patch], is_object[patch] = color, True
    pixels += NOISE * np.random.default_rng(seed).normal(size=pixels.shape)
    return pixels.clip(0.0, 1.0), is_object


def linear_plan(costs: Any) -> Any:
    """The plan of the problem without entropy, (P1), by linear programming."""
    from scipy.optimize import linprog

    num_prototypes, num_features = costs.shape
    each_feature = np.tile(np.eye(num_features), num_prototypes)
    solved = linprog(
        costs.ravel(),
        A_ub=each_feature,
        b_ub=np.full(num_features, 1.0 / num_features),
        A_eq=np.ones((1, costs.size)),
        b_eq=[RATIO],
    )
    return solved.x.reshape(costs.shape)


def facts(plan: Any, linear: Any, costs: Any, is_object: Any) -> dict[str, Any]:
    """What a plan does with the object, and how far it is from (P1)."""
    weights, others = (one.sum(axis=0) / one.sum() for one in (plan, linear))
    on_object = weights[is_object.ravel()]
    return {
        # Pixels with half of what an even share of the object would be.
        "object_covered": np.mean(on_object >= 0.5 / is_object.sum()),
        "mass_on_object": on_object.sum(),
        "excess_cost": np.sum(costs * plan) / np.sum(costs * linear) - 1.0,
        "distance_to_linear": np.abs(weights - others).sum(),
    }


def measure(settings: Settings) -> Iterator[Table]:
    """Solves each problem on each seed's map: a row each."""
    runs_of: dict[str, list] = {}
    prototypes = np.asarray(unit_ball(np.array([RED, BLUE_PIXEL])))
    for seed in settings.seeds:
        pixels, is_object = toy_map(seed)
        features = np.asarray(unit_ball(pixels.reshape(-1, 3)))
        costs = np.linalg.norm(prototypes[:, None] - features, axis=-1)
        plans: dict[str, Any] = {LINEAR: linear_plan(costs)}
        for temperature in SHOWN:
            _, plan = gsp.ops.partial_transport(
                costs, transport_ratio=RATIO, inverse_temperature=temperature
            )
            plans[f"ε = {temperature:g}"] = np.asarray(plan, "float64")
        for name, plan in plans.items():
            numbers = facts(plan, plans[LINEAR], costs, is_object)
            runs_of.setdefault(name, []).append(numbers)
        if settings.json and seed == settings.seeds[0]:
            draw(settings.json.with_suffix(".png"), pixels, plans)
    rows = [
        [name if name == LINEAR else f"entropic, {name}"]
        + [spread(x, digits=3) for x in over_runs(runs).values()]
        for name, runs in runs_of.items()
    ]
    headings = ("object pixels kept", "weight on object", "excess cost")
    yield Table(["", *headings, "L1 to linear"], rows)


def draw(path: Path, pixels: Any, plans: dict[str, Any]) -> None:
    """Draws the map, and plans in red and blue but the softest."""
    with picture(path, 1, 6, figsize=(16, 3.2)) as axes:
        maps = axes[0]
        maps[0].imshow(pixels)
        maps[0].set_title("10 x 10 features")
        softest = f"ε = {SHOWN[0]:g}"
        names = [name for name in plans if name != softest]
        for axis, name in zip(maps[1:], names, strict=True):
            axis.imshow(_colored(plans[name]))
            axis.set_title(f"pooled: {name}")
        for axis in maps:
            axis.set_xticks([])
            axis.set_yticks([])
            axis.spines[:].set_visible(True)


def _colored(plan):
    """White where nothing is pooled, else as red or blue as is moved."""
    moved = plan * plan.shape[1]
    red, blue = np.clip(moved, 0.0, 1.0).reshape(2, SIDE, SIDE)
    tints = 1.0 - np.array([RED, BLUE_PIXEL])
    return 1.0 - red[..., None] * tints[0] - blue[..., None] * tints[1]


if __name__ == "__main__":
    report.run_measurement(sys.modules[__name__])
