r"""How much the three numbers of GSP matter: prototypes, temperature, ratio.

    python -m training.research.experiments.sweep \
        --data-dir birds50.zip --weights mobilenet_v2.weights.h5

The screening of the papers' Table 5 on the features of a frozen MobileNetV2:
a 1 x 1 convolution and the pooling are trained, everything else is fixed. One
grid of temperatures and ratios, at the middle number of prototypes, and one
row of numbers of prototypes, at the middle temperature and ratio; average
pooling beside them. The classes are split in two halves by `--split-seed`;
scored are the unseen ones. Without `--data-dir`, the features of `glyphs` in
a network with random weights: a check that everything runs, not more.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from training.datasets.image_set import RetrievalSplits
from training.pictures.palette import METHODS, picture
from training.recipes.features import with_features
from training.recipes.own_images import FEATURES
from training.recipes.recipe import Recipe
from training.research.experiments.report import (
    ExperimentSettings,
    run_experiment,
)
from training.research.experiments.short_training import (
    balanced_batch,
    retrieval,
    trained_encoder,
)
from training.research.results.markdown import (
    markdown_table,
    mean_and_deviation,
    spread,
)


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(ExperimentSettings):
    """Frozen features, and how long a head is trained over them."""

    data_dir: Path | None = None
    """Image folder or archive, `birds50.zip`."""
    weights: Path | None = None
    """Weights of MobileNetV2 (alpha 0.35, no top)."""
    split_seed: int = 0
    """Which half of the classes is learned from."""
    steps: int = 150
    batch_size: int = 32


@dataclass(frozen=True, kw_only=True)
class Settings(FeatureSettings):
    """The grid."""

    num_prototypes: tuple[int, ...] = (16, 32, 64, 128)
    inverse_temperatures: tuple[float, ...] = (1.0, 5.0, 20.0)
    transport_ratios: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7)

    def small(self) -> "Settings":
        """A 2 x 2 grid of two steps."""
        return replace(
            self,
            seeds=(0,),
            num_prototypes=(2, 4),
            inverse_temperatures=(1.0, 10.0),
            transport_ratios=(0.3, 0.5),
            steps=2,
            batch_size=8,
        )

    @property
    def center(self) -> tuple[int, float, float]:
        """Prototypes, temperature and ratio of the middle of the grid.

        The papers' values where the grid has them: 64, 5 and 0.3.
        """
        return (
            _nearest(self.num_prototypes, 64),
            _nearest(self.inverse_temperatures, 5.0),
            _nearest(self.transport_ratios, 0.3),
        )


def _nearest(values, wanted):
    return min(values, key=lambda value: abs(value - wanted))


def load_features(settings: FeatureSettings) -> RetrievalSplits:
    """Features of all images, split by class."""
    if settings.data_dir is None:
        from training.datasets import glyphs

        recipe = Recipe(frozen="all", cache_features=True)
        return with_features(
            recipe,
            glyphs.load(
                train_classes=8,
                train_samples=8,
                validation_classes=1,
                test_classes=8,
                test_samples=4,
            ),
        )
    from training.datasets.image_folder import image_folder_splits

    splits = image_folder_splits(settings.data_dir, seed=settings.split_seed)
    weights = str(settings.weights) if settings.weights else None
    return with_features(replace(FEATURES, backbone_weights=weights), splits)


def screened(settings: Settings) -> list[tuple[int, float, float]]:
    """Prototypes, temperature and ratio of every model, each once."""
    count, temperature, ratio = settings.center
    models = [
        (count, t, r)
        for t in settings.inverse_temperatures
        for r in settings.transport_ratios
    ]
    models += [(m, temperature, ratio) for m in settings.num_prototypes]
    return list(dict.fromkeys(models))


def measure(settings: Settings) -> dict:
    """Trains all models for every seed, scores unseen classes."""
    data = load_features(settings)
    base = replace(
        FEATURES,
        **balanced_batch(data.train, settings.batch_size),
        steps=settings.steps,
        steps_per_evaluation=settings.steps,
    )
    recipes = [replace(base, pooling="gap")]
    recipes += [
        replace(
            base,
            pooling="gsp",
            num_prototypes=count,
            inverse_temperature=temperature,
            transport_ratio=ratio,
        )
        for count, temperature, ratio in screened(settings)
    ]
    rows = []
    for recipe in tqdm(recipes, desc="models"):
        runs = [
            retrieval(
                trained_encoder(replace(recipe, seed=seed), data.train),
                data.test,
            )
            for seed in settings.seeds
        ]
        scores = {
            name: mean_and_deviation([run[name] for run in runs])
            for name in runs[0]
        }
        rows.append(_described(recipe) | scores)
    return {"center": settings.center, "rows": rows}


def _described(recipe):
    if recipe.pooling == "gap":
        return {"pooling": "GAP"}
    return {
        "pooling": "GSP",
        "num_prototypes": recipe.num_prototypes,
        "inverse_temperature": recipe.inverse_temperature,
        "transport_ratio": recipe.transport_ratio,
    }


def draw(path: Path, results: dict) -> None:
    """Draws the grid as a heat map, and the row of prototypes."""
    average, *rows = results["rows"]
    count, temperature, ratio = results["center"]
    grid = [row for row in rows if row["num_prototypes"] == count]
    line = [
        row
        for row in rows
        if (row["inverse_temperature"], row["transport_ratio"])
        == (temperature, ratio)
    ]
    with picture(path, 1, 2, figsize=(14, 5.4)) as axes:
        _draw_grid(axes[0, 0], grid, average["map_at_r"]["mean"])
        axes[0, 0].set_title(f"GSP, {count} prototypes")
        _draw_line(axes[0, 1], line, average["map_at_r"])
        axes[0, 1].set_title(f"ε = {temperature:g}, ratio {ratio:g}")


def _draw_grid(axis, rows, average):
    temperatures = list(dict.fromkeys(r["inverse_temperature"] for r in rows))
    ratios = list(dict.fromkeys(r["transport_ratio"] for r in rows))
    found = {
        (r["inverse_temperature"], r["transport_ratio"]): r["map_at_r"]["mean"]
        for r in rows
    }
    scores = 100.0 * np.array(
        [[found[t, r] for r in ratios] for t in temperatures]
    )
    image = axis.imshow(scores, cmap="viridis", aspect="auto")
    dark = scores < (scores.min() + scores.max()) / 2.0
    for (row, column), score in np.ndenumerate(scores):
        axis.text(
            column,
            row,
            f"{score:.1f}",
            ha="center",
            va="center",
            color="white" if dark[row, column] else "black",
        )
    axis.set_xticks(range(len(ratios)), ratios)
    axis.set_yticks(range(len(temperatures)), temperatures)
    axis.set_xlabel("transport ratio")
    axis.set_ylabel("inverse temperature ε")
    axis.figure.colorbar(
        image, ax=axis, label=f"MAP@R, % (GAP: {100.0 * average:.1f})"
    )


def _draw_line(axis, rows, average):
    rows = sorted(rows, key=lambda row: row["num_prototypes"])
    counts = [row["num_prototypes"] for row in rows]
    axis.errorbar(
        counts,
        [100.0 * row["map_at_r"]["mean"] for row in rows],
        [100.0 * (row["map_at_r"]["std"] or 0.0) for row in rows],
        color=METHODS["GSP"],
        marker="o",
        capsize=4,
        label="GSP, mean ± deviation",
    )
    mean, deviation = 100.0 * average["mean"], 100.0 * (average["std"] or 0.0)
    axis.axhline(mean, color=METHODS["GAP"], ls="--", label="GAP")
    axis.axhspan(mean - deviation, mean + deviation, color="0.85", lw=0)
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, counts)
    axis.set_xlabel("number of prototypes")
    axis.set_ylabel("MAP@R, %")
    axis.legend()


def table(results: dict) -> str:
    """One row a model."""
    names = ("num_prototypes", "inverse_temperature", "transport_ratio")
    rows = [
        [row["pooling"], *(row.get(name, "") for name in names)]
        + [
            spread(row["map_at_r"], digits=3),
            spread(row["precision_at_1"], digits=3),
        ]
        for row in results["rows"]
    ]
    headings = ("prototypes", "ε", "ratio", "MAP@R", "P@1")
    return markdown_table(["", *headings], rows)


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("sweep", settings, measure, draw, table)


if __name__ == "__main__":
    main()
