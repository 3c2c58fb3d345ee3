"""Can pooling drop what all classes share?

    python -m training.research.experiments.synthetic_tokens

Each of 16 classes has 4 tokens; 4 background tokens belong to all. A sample is
a bag of 50 tokens, about half from its class, the rest background. All tokens
are trained, inside [-0.3, 0.3], like a network that can learn any feature; only
the pooling differs. Average pooling changes with the share of background,
generalized sum pooling can ignore it. MAP@R is measured on new bags of the
same classes. Thesis, section 5.3.1.

Tokens have two dimensions, so that classes can be drawn. The loss is
contrastive, without normalization. The gap to average pooling depends mostly
on its margin.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.pictures.palette import picture
from training.research.report import (
    ExperimentSettings,
    Table,
    over_runs,
    run_measurement,
    spread,
)

CLASS_TOKENS = 4
BACKGROUND_TOKENS = 4
BOUND = 0.3
"""Tokens stay in [-0.3, 0.3]."""
SHARE_MEAN, SHARE_SPREAD = 0.5, 0.1


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Sizes of the bags and of the training."""

    num_classes: int = 16
    bag_size: int = 50
    num_prototypes: int = 64
    transport_ratio: float = 0.3
    inverse_temperature: float = 50.0
    """Costs are at most 0.85 here, between corners of the square."""
    negative_margins: tuple[float, ...] = (0.1, 0.2, 0.3)
    """Of the contrastive loss, a distance; the last one is drawn."""
    samples_per_class: int = 4
    """Bags of each class in a batch."""
    steps: int = 1500
    learning_rate: float = 3e-3
    test_bags: int = 40
    """Bags of each class that are scored."""

    SMALL = {
        "seeds": (0, 1),
        "num_classes": 4,
        "bag_size": 10,
        "negative_margins": (0.3,),
        "num_prototypes": 4,
        "steps": 10,
        "test_bags": 5,
    }


def draw_bags(settings: Settings, labels: Any, rng: np.random.Generator) -> Any:
    """Draws a bag for each label, (bags, bag_size), token numbers.

    The last `BACKGROUND_TOKENS` numbers are the background.
    """
    shape = len(labels), settings.bag_size
    share = rng.normal(SHARE_MEAN, SHARE_SPREAD, size=(len(labels), 1))
    own = np.round(settings.bag_size * share.clip(0.0, 1.0))
    is_own = np.arange(settings.bag_size) < own
    of_class = rng.integers(CLASS_TOKENS, size=shape)
    of_class += CLASS_TOKENS * np.asarray(labels)[:, None]
    background = rng.integers(BACKGROUND_TOKENS, size=shape)
    background += CLASS_TOKENS * settings.num_classes
    return np.where(is_own, of_class, background).astype("int32")


class InsideBox(keras.constraints.Constraint):
    """Keeps every entry of a weight in [-0.3, 0.3]."""

    def __call__(self, value: Any) -> Any:
        """Clips."""
        return keras.ops.clip(value, -BOUND, BOUND)


def build_model(settings: Settings, method: str, margin: float) -> Any:
    """Tokens, then the pooling of the method, compiled."""
    num_tokens = CLASS_TOKENS * settings.num_classes + BACKGROUND_TOKENS
    tokens = keras.layers.Embedding(
        num_tokens,
        2,
        embeddings_initializer=keras.initializers.RandomUniform(-BOUND, BOUND),
        embeddings_constraint=InsideBox(),
        name="tokens",
    )
    pooling = keras.layers.GlobalAveragePooling1D()
    if method == "GSP":
        pooling = gsp.layers.GeneralizedSumPooling(
            settings.num_prototypes,
            settings.transport_ratio,
            settings.inverse_temperature,
            # Prototypes start where tokens may be.
            prototype_initializer=keras.initializers.RandomUniform(
                -BOUND, BOUND
            ),
        )
    bags = keras.Input((settings.bag_size,), dtype="int32")
    model = keras.Model(bags, pooling(tokens(bags)))
    model.compile(
        keras.optimizers.Adam(settings.learning_rate),
        loss=gsp.losses.ContrastiveLoss(
            negative_margin=margin, normalization=None
        ),
    )
    return model


def train(settings: Settings, method: str, margin: float, seed: int) -> dict:
    """Trains one model and scores fresh bags."""
    keras.utils.set_random_seed(seed)
    # Both methods see the same bags.
    rng = np.random.default_rng(seed)
    batch = np.repeat(
        np.arange(settings.num_classes), settings.samples_per_class
    )
    labels = np.tile(batch, settings.steps)
    model = build_model(settings, method, margin)
    model.fit(
        draw_bags(settings, labels, rng),
        labels,
        batch_size=len(batch),
        shuffle=False,
        verbose=0,
    )
    labels = np.repeat(np.arange(settings.num_classes), settings.test_bags)
    bags = draw_bags(settings, labels, rng)
    embeddings = keras.ops.convert_to_numpy(model(bags, training=False))
    scores = gsp.metrics.retrieval_scores(embeddings, labels)
    return {
        "scores": {n: scores[n] for n in ("map_at_r", "precision_at_1")},
        "drawn": (
            embeddings,
            labels,
            keras.ops.convert_to_numpy(model.get_layer("tokens").embeddings),
        ),
    }


def measure(settings: Settings) -> dict:
    """Trains every method for every seed and margin."""
    rows, drawn = [], {}
    for margin in settings.negative_margins:
        for method in ("GAP", "GSP"):
            runs = [
                train(settings, method, margin, seed)
                for seed in tqdm(
                    settings.seeds, desc=f"{method}, margin {margin:g}"
                )
            ]
            scores = over_runs([run["scores"] for run in runs])
            rows.append({"method": method, "negative_margin": margin} | scores)
            drawn[method] = runs[0]["drawn"]
    return {"rows": rows, "drawn": drawn}


def draw(path: Path, results: dict) -> None:
    """Draws both embedding spaces."""
    margin = results["rows"][-1]["negative_margin"]
    with picture(path, 1, 2, figsize=(11, 5.4)) as axes:
        drawn = results["drawn"].items()
        for axis, (method, space) in zip(axes[0], drawn, strict=True):
            _draw_classes(axis, space)
            count = len(set(space[1]))
            axis.set_title(f"{method}: {count} classes, margin {margin:g}")


def _draw_classes(axis, shown):
    """Convex hulls of the classes, class tokens, background tokens."""
    from matplotlib import colormaps

    embeddings, labels, tokens = shown
    colors = colormaps["viridis"](np.linspace(0.0, 0.95, labels.max() + 1))
    for label, color in enumerate(colors):
        axis.fill(
            *convex_hull(embeddings[labels == label]).T,
            facecolor=(*color[:3], 0.35),
            edgecolor=color,
            lw=1.5,
        )
    own, background = np.split(tokens, [-BACKGROUND_TOKENS])
    axis.plot(*own.T, ".", color="0.4", ms=5, label="class tokens")
    axis.plot(*background.T, "x", color="k", ms=10, label="background tokens")
    axis.set_xlim(-1.1 * BOUND, 1.1 * BOUND)
    axis.set_ylim(-1.1 * BOUND, 1.4 * BOUND)
    axis.set_aspect("equal")
    axis.set_xlabel("embedding, dimension 1")
    axis.set_ylabel("dimension 2")
    axis.legend(loc="upper center", ncols=2, fontsize=11)


def convex_hull(points: np.ndarray) -> np.ndarray:
    """Corners of the convex hull; the points where they have no area."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        return points


def tables(results: dict) -> list[Table]:
    """One row for each pooling and margin."""
    rows = [
        [row["method"], row["negative_margin"]]
        + [spread(row[n], digits=3) for n in ("map_at_r", "precision_at_1")]
        for row in results["rows"]
    ]
    return [Table(["pooling", "negative margin", "MAP@R", "P@1"], rows)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
