r"""Pairs alone, pairs against one set of proxies, and alternating proxies.

    python -m training.research.experiments.alternating_proxies
    python -m training.research.experiments.alternating_proxies \
        --data-dir birds50.zip --weights mobilenet_v2.weights.h5

The contrastive loss C2 within the batch, between batch and proxies of a
single problem, and with chance constrained programming (CCP), with the same
number of steps, batches and first weights; the proxies of both start from
samples. Samples stand for their class only in a network that has learned
something; against those of a random one nothing is learned. So on `glyphs` a
small network is first trained with pairs, and all three start from it with a
new head; with `--data-dir`, a head is trained over the features of a frozen
MobileNetV2 on an image folder, whose classes are split in halves to train on
and to score. The weights with the best validation score are scored on unseen
classes.

Also what a step costs with proxies and anchors, as the ratio to a step
without, both measured by turns in this process (about 1.08 in the paper), and
how long the choice of the next proxies takes.
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

import keras_gsp as gsp
from training.datasets.image_set import RetrievalSplits
from training.pictures.palette import METHODS, SKY, picture
from training.recipes import batches
from training.recipes.choice import named_recipes
from training.recipes.learner import build_learner
from training.recipes.recipe import Recipe
from training.research.experiments.report import (
    ExperimentSettings,
    run_experiment,
)
from training.research.results.markdown import (
    markdown_table,
    mean_and_deviation,
    spread,
)
from training.runs.run_directory import RunDirectory
from training.runs.train_run import train_run

PLAIN, SINGLE, ALTERNATING = "C2", "C2 + single problem", "C2 + CCP"
CCP: dict[str, Any] = {PLAIN: "off", SINGLE: "single", ALTERNATING: "on"}
COLORS = {PLAIN: METHODS["GAP"], SINGLE: SKY, ALTERNATING: METHODS["CCP"]}


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Which images, how long, and how proxies alternate."""

    data_dir: Path | None = None
    """Image folder or archive; `glyphs` by default."""
    weights: Path | None = None
    """Weights of MobileNetV2 (alpha 0.35, no top) for that folder."""
    pretraining_steps: int = 500
    """Steps on pairs before the three begin, on `glyphs` only."""
    steps: int = 400
    steps_per_evaluation: int = 40
    proxies_per_class: int = 4
    pool_size: int = 12
    """Samples per class among which the next proxies are chosen."""
    patience: int = 2
    """Evaluations without a gain after which a problem has converged."""
    anchor_weight: float = 2e-4
    """Pull towards the last problem's solution."""
    in_batch_weight: float = 0.1
    """Weight of C2 within the batch beside C2 against proxies: the reference
    code's; 0 in the paper."""
    proxy_learning_rate_multiplier: float = 5.0
    """How much faster proxies learn."""
    normalization: Literal["l2", "ball"] = "l2"
    """Of embeddings, in all three; the paper of CCP takes the ball."""
    timed_rounds: int = 5
    """Times that both steps are timed by turns; the median ratio counts."""
    timed_steps: int = 60
    """Steps of one timing."""

    def small(self) -> "Settings":
        """A few steps with one seed."""
        return replace(
            self,
            seeds=(0,),
            pretraining_steps=2,
            steps=8,
            steps_per_evaluation=2,
            patience=1,
            pool_size=4,
            timed_rounds=1,
            timed_steps=2,
        )


def recipe_of(
    settings: Settings, method: str, seed: int, weights: Any = None
) -> Recipe:
    """The recipe of one of the three methods, from a pretrained backbone."""
    is_glyphs = settings.data_dir is None
    base = named_recipes()["glyphs" if is_glyphs else "folder-features"]
    if not is_glyphs:
        base = replace(base, data_dir=str(settings.data_dir))
        weights = settings.weights
    return replace(
        base,
        backbone_weights=weights and str(weights),
        ccp=CCP[method],
        steps=settings.steps,
        steps_per_evaluation=settings.steps_per_evaluation,
        proxies_per_class=settings.proxies_per_class,
        ccp_pool_size=settings.pool_size,
        ccp_patience=settings.patience,
        anchor_weight=settings.anchor_weight,
        in_batch_weight=None if method == PLAIN else settings.in_batch_weight,
        proxy_learning_rate_multiplier=(
            settings.proxy_learning_rate_multiplier
        ),
        normalization=settings.normalization,
        seed=seed,
    )


def load(settings: Settings) -> RetrievalSplits:
    """The data set; of a folder the features, computed once."""
    if settings.data_dir is not None:
        from training.recipes.data import load_splits

        return load_splits(recipe_of(settings, PLAIN, 0))
    from training.datasets import glyphs

    if not settings.smoke:
        return glyphs.load()
    return glyphs.load(
        train_classes=20,
        train_samples=8,
        validation_classes=4,
        test_classes=4,
        test_samples=4,
    )


def measure(settings: Settings) -> dict:
    """Trains every method with every seed, then times the steps."""
    splits = load(settings)
    runs: dict[str, list] = {method: [] for method in CCP}
    for seed in settings.seeds:
        with tempfile.TemporaryDirectory() as folder:
            weights = _pretrained(settings, splits, seed, Path(folder))
            for method, found in runs.items():
                recipe = recipe_of(settings, method, seed, weights)
                directory = RunDirectory(Path(folder) / CCP[method])
                label = f"{method}, seed {seed}"
                found.append(_run(recipe, splits, directory, label))
    every = settings.steps_per_evaluation
    curves = {
        method: np.mean([run["validation"] for run in found], axis=0)
        for method, found in runs.items()
    }
    measures = "map_at_r", "precision_at_1", "problems"
    return {
        "data": splits.name,
        "rows": [
            {"method": method}
            | {
                m: mean_and_deviation([run[m] for run in found])
                for m in measures
            }
            for method, found in runs.items()
        ],
        "validation": curves
        | {"steps": np.arange(every, settings.steps + 1, every)},
        "cost": step_cost(settings, splits),
    }


def _run(recipe, splits, directory, label):
    """Test scores, validation scores on the way, number of problems."""
    scores = train_run(recipe, splits, directory, label=label)
    history = directory.read_history()
    return scores | {
        "problems": history[-1].get("ccp_problem", 0),
        "validation": [line["val_map_at_r"] for line in history],
    }


def _pretrained(settings, splits, seed, folder):
    """File with the small network's weights after steps on pairs."""
    if settings.data_dir is not None:
        return None
    recipe, images = recipe_of(settings, PLAIN, seed), splits.train
    learner = build_learner(
        recipe,
        num_classes=images.num_classes,
        image_shape=batches.image_shape(recipe, images),
    )
    learner.fit(
        batches.training_batches(recipe, images),
        steps_per_epoch=settings.pretraining_steps,
        shuffle=False,
        verbose=0,
    )
    path = folder / "pretrained.weights.h5"
    learner.encoder.get_layer("glyph_cnn").save_weights(path)
    return path


def step_cost(settings: Settings, splits: RetrievalSplits) -> dict:
    """Times steps with and without proxies and anchors by turns.

    Returns:
        Their ratio, milliseconds of a plain step, seconds to choose proxies.
    """
    learners = {
        method: _learner_and_batches(settings, splits, method)
        for method in (PLAIN, ALTERNATING)
    }
    learner = learners[ALTERNATING][0]
    # From the second problem on, anchors pull.
    learner.anchored.start_problem(learner.encoder.trainable_variables)
    for method in learners:
        _seconds_of_steps(learners[method], settings.timed_steps)
    seconds = [
        {
            method: _seconds_of_steps(pair, settings.timed_steps)
            for method, pair in learners.items()
        }
        for _ in range(settings.timed_rounds)
    ]
    ratios = [times[ALTERNATING] / times[PLAIN] for times in seconds]
    plain = np.median([times[PLAIN] for times in seconds])
    return {
        "ratio": np.median(ratios),
        "ratios": ratios,
        "milliseconds": 1e3 * plain / settings.timed_steps,
        "seconds_of_choice": _seconds_of_choice(settings, splits, learner),
    }


def _learner_and_batches(settings, splits, method):
    recipe = recipe_of(settings, method, 0)
    images = splits.train
    learner = build_learner(
        recipe,
        num_classes=images.num_classes,
        image_shape=batches.image_shape(recipe, images),
    )
    # Drawn beforehand: the step is timed, not the reading of images.
    few = batches.training_batches(recipe, images).take(8).cache().repeat()
    return learner, few


def _seconds_of_steps(learner_and_batches, steps):
    learner, few_batches = learner_and_batches
    start = time.perf_counter()
    learner.fit(few_batches, steps_per_epoch=steps, shuffle=False, verbose=0)
    return time.perf_counter() - start


def _seconds_of_choice(settings, splits, learner):
    """Embedding the pool and k-center, the second time."""
    recipe = recipe_of(settings, ALTERNATING, 0)
    callback = gsp.callbacks.ChanceConstrainedProgramming(
        batches.pool_of(recipe, splits.train), pool_size=settings.pool_size
    )
    callback.set_model(learner)
    callback.on_train_begin()
    for _ in range(2):
        start = time.perf_counter()
        learner.progress.is_started.assign(0)
        callback.on_epoch_begin(0)
    return time.perf_counter() - start


def draw(path: Path, results: dict) -> None:
    """Validation scores on the way, and test scores of each seed."""
    with picture(path, 1, 2, figsize=(13, 4.8)) as axes:
        on_the_way, test = axes[0]
        validation = results["validation"]
        for row, (method, color) in enumerate(COLORS.items()):
            on_the_way.plot(
                validation["steps"],
                validation[method],
                color=color,
                label=method,
            )
            values = results["rows"][row]["map_at_r"]["values"]
            test.plot(values, [row] * len(values), "o", color=color, ms=9)
        on_the_way.set_xlabel("step")
        on_the_way.set_ylabel("validation MAP@R, mean of seeds")
        on_the_way.legend()
        test.set_yticks(range(len(COLORS)), list(COLORS))
        test.set_ylim(len(COLORS) - 0.5, -0.5)
        test.set_xlabel("MAP@R of unseen classes, a point a seed")


def table(results: dict) -> str:
    """One row a method, then what a step costs."""
    rows = [
        [
            row["method"],
            spread(row["map_at_r"], digits=3),
            spread(row["precision_at_1"], digits=3),
            spread(row["problems"], digits=1),
        ]
        for row in results["rows"]
    ]
    headings = f"{results['data']}", "MAP@R", "P@1", "problems"
    cost = results["cost"]
    ratios = ", ".join(f"{ratio:.3f}" for ratio in cost["ratios"])
    return (
        markdown_table(headings, rows)
        + f"\n\nA step with CCP takes {cost['ratio']:.3f} times a plain one "
        f"({cost['milliseconds']:.1f} ms; rounds: {ratios}); a choice of "
        f"proxies takes {cost['seconds_of_choice']:.2f} s."
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("alternating_proxies", settings, measure, draw, table)


if __name__ == "__main__":
    main()
