r"""Does the number of solver rounds change retrieval?

    python -m training.research.experiments.solver_rounds --data-dir birds50.zip \
        --weights mobilenet_v2.weights.h5

Generalized sum pooling with k rounds of the paper's iteration (gradient
through the rounds, or in closed form at the last iterate) and with this
package's exact solver, beside average pooling: MAP@R of unseen classes, and
milliseconds of a training step of the head. A 1 x 1 convolution and the
pooling are trained on features of a frozen MobileNetV2 with the contrastive
loss. Without `--data-dir` the features are those of `glyphs` in a random
network, to check that everything runs. Figure 7 of GSP, whose supplement (1.5)
finds no difference from 25 rounds on.
"""

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.datasets import glyphs
from training.datasets.image_set import RetrievalSplits
from training.datasets.own_images import folder_splits
from training.pictures.palette import BLACK, BLUE, VERMILION, picture
from training.recipes.batches import training_batches
from training.recipes.features import with_features
from training.recipes.learner import start_from_data
from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.research.experiments.few_prototypes import (
    balanced_batch,
    retrieval,
)
from training.research.iterated_pooling import IteratedSumPooling
from training.research.report import (
    ExperimentSettings,
    Table,
    over_runs,
    run_measurement,
    spread,
)

FEATURES = named("folder-features").with_(backbone_weights=None)
AVERAGE, EXACT = "average pooling", "GSP, exact"
CLOSED, AUTODIFF = "GSP, closed form", "GSP, autodiff"
LOOKS = {CLOSED: (BLACK, "--"), AUTODIFF: (VERMILION, ":")}
SHOWN = {"map_at_r": "MAP@R", "milliseconds": "ms a step"}


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Frozen features, rounds, and the pooling that they solve."""

    data_dir: Path | None = None
    """Image folder or archive, `birds50.zip`."""
    weights: Path | None = None
    """Weights of MobileNetV2 (alpha 0.35, no top)."""
    split_seed: int = 0
    """Seed that chooses the training half of the classes."""
    steps: int = 150
    batch_size: int = 32
    rounds: tuple[int, ...] = (1, 5, 25, 100)
    """Rounds of the paper's iteration."""
    num_prototypes: int = 64
    inverse_temperature: float = 5.0
    transport_ratio: float = 0.3

    SMALL = {
        "seeds": (0,),
        "rounds": (2,),
        "num_prototypes": 4,
        "steps": 2,
        "batch_size": 8,
    }


def load_features(settings: Settings) -> RetrievalSplits:
    """Features of all images, split by class."""
    if settings.data_dir is None:
        recipe = Recipe.of(frozen="all", cache_features=True)
        data = glyphs.load(
            train_classes=8,
            train_samples=8,
            validation_classes=1,
            test_classes=8,
            test_samples=4,
        )
        return with_features(recipe, data)
    splits = folder_splits(settings.data_dir, seed=settings.split_seed)
    weights = str(settings.weights) if settings.weights else None
    return with_features(FEATURES.with_(backbone_weights=weights), splits)


def contenders(settings: Settings) -> dict:
    """(method, rounds) -> function that makes its pooling layer."""
    options: dict[str, Any] = {
        "num_prototypes": settings.num_prototypes,
        "transport_ratio": settings.transport_ratio,
        "inverse_temperature": settings.inverse_temperature,
        "name": "pooling",
    }
    found: dict = {
        (AVERAGE, 0): partial(
            keras.layers.GlobalAveragePooling2D, name="pooling"
        ),
        (EXACT, 0): partial(gsp.layers.GeneralizedSumPooling, **options),
    }
    for rounds in settings.rounds:
        for name in (CLOSED, AUTODIFF):
            found[name, rounds] = partial(
                IteratedSumPooling,
                num_rounds=rounds,
                is_closed_form=name == CLOSED,
                **options,
            )
    return found


def trained(
    settings: Settings, images: Any, make_pooling: Any, seed: int
) -> tuple[Any, Any]:
    """A head, whose prototypes start as a recipe's do, and its ms a step."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    inputs = keras.Input(images.images.shape[1:])
    encoder = gsp.models.build_encoder(
        keras.Model(inputs, keras.layers.Identity()(inputs)),
        embedding_size=FEATURES.embedding_size,
        pooling=make_pooling(),
    )
    learner = gsp.models.MetricLearner(encoder)
    learner.compile(
        keras.optimizers.AdamW(FEATURES.learning_rate),
        loss=gsp.losses.ContrastiveLoss(
            negative_margin=FEATURES.loss_arguments.negative_margin
        ),
    )
    recipe = FEATURES.with_(
        **balanced_batch(images, settings.batch_size), seed=seed
    )
    batches = training_batches(recipe, images)
    start_from_data(recipe, learner, batches)
    ends: list[float] = []
    timer = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    learner.fit(
        batches,
        epochs=1,
        steps_per_epoch=settings.steps,
        shuffle=False,
        verbose=0,
        callbacks=[timer],
    )
    # Without the first step, which traces.
    return encoder, 1e3 * float(np.median(np.diff(ends)))


def measure(settings: Settings) -> dict:
    """Trains every contender with every seed."""
    data = load_features(settings)
    rows = []
    for (method, rounds), make in tqdm(contenders(settings).items()):
        runs = []
        for seed in settings.seeds:
            encoder, milliseconds = trained(settings, data.train, make, seed)
            scores = retrieval(encoder, data.test)
            runs.append(scores | {"milliseconds": milliseconds})
        rows.append({"method": method, "rounds": rounds} | over_runs(runs))
    return {"rows": rows}


def draw(path: Path, results: dict) -> None:
    """Draws score and time against the number of rounds."""
    average, exact, *rows = results["rows"]
    with picture(path, 1, 2, figsize=(12, 5)) as axes:
        for axis, (name, words) in zip(axes[0], SHOWN.items(), strict=True):
            for row, color in ((average, "0.5"), (exact, BLUE)):
                axis.axhline(
                    row[name]["mean"], color=color, label=row["method"]
                )
            for method, (color, style) in LOOKS.items():
                own = [row for row in rows if row["method"] == method]
                axis.errorbar(
                    [row["rounds"] for row in own],
                    [row[name]["mean"] for row in own],
                    [row[name]["std"] or 0.0 for row in own],
                    color=color,
                    ls=style,
                    marker="o",
                    capsize=3,
                    label=method,
                )
            axis.set_xlabel("rounds of the paper's iteration")
            axis.set_ylabel(words)
        axes[0, 0].legend()


def tables(results: dict) -> list[Table]:
    """One row for each method and number of rounds."""
    rows = [
        [row["method"], row["rounds"] or "-"]
        + [spread(row[one], 100, 2) for one in ("map_at_r", "precision_at_1")]
        + [spread(row["milliseconds"], digits=1)]
        for row in results["rows"]
    ]
    headings = ["", "rounds", "MAP@R, %", "P@1, %", "ms a step"]
    return [Table(headings, rows)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
