"""Can pooling drop what all classes share? Classes made of trainable tokens.

    python -m training.experiments.synthetic_tokens

16 classes own 4 tokens each, 4 background tokens belong to all of them. A
sample is a bag of 50 tokens, a share of about one half from its class, the
rest background. All tokens are trained, inside [-0.3, 0.3]: a network that
could learn any feature it wants. What is left is the pooling. Average pooling
moves with the share of background; generalized sum pooling can leave it out.
Scored on fresh bags of the same classes. Thesis, section 5.3.1.

Two numbers of dimensions: 2, where the classes can be drawn, and more. The
thesis does not say which prototypes, temperature and loss it used: here 64
prototypes, ratio 0.3 and the contrastive loss without normalisation.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import keras
import numpy as np
import tyro

import keras_gsp as gsp
from training.experiments.report import (
    ExperimentSettings,
    cell,
    markdown_table,
    mean_and_spread,
    run_experiment,
)
from training.pictures.palette import METHODS, picture

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
    dimensions: tuple[int, ...] = (2, 8)
    """Sizes of a token; the first one is drawn."""
    num_prototypes: int = 64
    transport_ratio: float = 0.3
    inverse_temperature: float = 50.0
    """Costs are at most 0.85 here, between corners of the square."""
    negative_margin: float = 0.3
    """Of the contrastive loss, a distance."""
    samples_per_class: int = 4
    """Bags of each class in a batch."""
    steps: int = 3000
    learning_rate: float = 3e-3
    test_bags: int = 40
    """Bags of each class that are scored."""

    def small(self):
        """A handful of steps."""
        return replace(
            self,
            seeds=(0, 1),
            num_classes=4,
            bag_size=10,
            dimensions=(2,),
            num_prototypes=4,
            steps=10,
            test_bags=5,
        )


def draw_bags(settings: Settings, labels, rng):
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


@keras.saving.register_keras_serializable(package="keras_gsp_training")
class InsideBox(keras.constraints.Constraint):
    """Keeps every entry of a weight in [-0.3, 0.3]."""

    def __call__(self, value):
        """Clips."""
        return keras.ops.clip(value, -BOUND, BOUND)


def build_model(settings: Settings, method: str, dimension: int):
    """Tokens, then the pooling of the method, compiled."""
    num_tokens = CLASS_TOKENS * settings.num_classes + BACKGROUND_TOKENS
    tokens = keras.layers.Embedding(
        num_tokens,
        dimension,
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
            negative_margin=settings.negative_margin, normalization=None
        ),
    )
    return model


def train(settings: Settings, method: str, dimension: int, seed: int) -> dict:
    """Trains one model and scores fresh bags.

    Returns:
        Scores, embeddings and labels of the test bags, and the tokens.
    """
    keras.utils.set_random_seed(seed)
    # Both methods see the same bags.
    rng = np.random.default_rng(seed)
    batch = np.repeat(
        np.arange(settings.num_classes), settings.samples_per_class
    )
    labels = np.tile(batch, settings.steps)
    model = build_model(settings, method, dimension)
    model.fit(
        draw_bags(settings, labels, rng),
        labels,
        batch_size=len(batch),
        shuffle=False,
        verbose=0,
    )
    labels = np.repeat(np.arange(settings.num_classes), settings.test_bags)
    embeddings = model.predict(
        draw_bags(settings, labels, rng), batch_size=len(labels), verbose=0
    )
    scores = gsp.metrics.retrieval_scores(embeddings, labels)
    tokens = keras.ops.convert_to_numpy(model.get_layer("tokens").embeddings)
    return {
        "map_at_r": scores["map_at_r"],
        "precision_at_1": scores["precision_at_1"],
        "embeddings": embeddings,
        "labels": labels,
        "tokens": tokens,
    }


def measure(settings: Settings) -> dict:
    """Trains every method for every seed and number of dimensions."""
    scores, drawn = {}, {}
    for dimension in settings.dimensions:
        for method in ("GAP", "GSP"):
            runs = [
                train(settings, method, dimension, seed)
                for seed in settings.seeds
            ]
            scores[f"{method} {dimension}"] = {
                measure: mean_and_spread([run[measure] for run in runs])
                for measure in ("map_at_r", "precision_at_1")
            }
            if dimension == settings.dimensions[0]:
                keys = ("embeddings", "labels", "tokens")
                drawn[method] = {key: runs[0][key] for key in keys}
    return {"scores": scores, "first_seed": drawn}


def draw(path: Path, results: dict) -> None:
    """Draws both embedding spaces, and the scores."""
    with picture(path, 1, 3, figsize=(16, 5.4)) as axes:
        for axis, (method, shown) in zip(
            axes[0], results["first_seed"].items(), strict=False
        ):
            _draw_classes(axis, shown)
            axis.set_title(f"{method}: hulls of {_num_classes(shown)} classes")
        _draw_scores(axes[0, 2], results["scores"])


def _num_classes(shown):
    return len(set(shown["labels"]))


def _draw_classes(axis, shown):
    """Convex hulls of the classes, class tokens, background tokens."""
    from matplotlib import colormaps

    embeddings = np.array(shown["embeddings"])[:, :2]
    labels = np.array(shown["labels"])
    tokens = np.array(shown["tokens"])[:, :2]
    colors = colormaps["viridis"](np.linspace(0.0, 0.95, labels.max() + 1))
    for label, color in enumerate(colors):
        axis.fill(
            *hull(embeddings[labels == label]).T,
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


def hull(points):
    """Corners of the convex hull; the points where they have no area."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        return points


def _draw_scores(axis, scores):
    for position, (name, numbers) in enumerate(scores.items()):
        method = name.split()[0]
        found = numbers["map_at_r"]
        axis.bar(position, found["mean"], 0.6, color=METHODS[method])
        values = found["values"]
        axis.plot([position] * len(values), values, "o", color="0.6", ms=7)
    axis.set_xticks(
        range(len(scores)),
        ["{}\n{}-d tokens".format(*name.split()) for name in scores],
    )
    axis.set_ylabel("MAP@R on fresh bags")
    axis.set_ylim(0.0, 1.05)
    axis.set_title("mean, and each seed")


def table(results: dict) -> str:
    """One row for each pooling and number of dimensions."""
    rows = [
        [*name.split(), *(cell(numbers) for numbers in scores.values())]
        for name, scores in results["scores"].items()
    ]
    return markdown_table(["pooling", "dimensions", "MAP@R", "P@1"], rows)


def main(arguments=None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("synthetic_tokens", settings, measure, draw, table)


if __name__ == "__main__":
    main()
