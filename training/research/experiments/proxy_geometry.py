"""Where do proxies end up: one problem against four alternating ones?

    python -m training.research.experiments.proxy_geometry

Figure 3.2 of the thesis on scikit-learn's digits: two-dimensional embeddings
in the unit ball, 4 proxies per class, the next proxies chosen from 16 samples
per class. The single problem starts with the same proxies and trains for as
many steps as the four problems took. The covering radius is the largest
distance of a training sample to the nearest converged proxy of its class,
averaged over classes. The inter-class distance is the mean distance between
the centers of two classes. MAP@R is measured on unseen images of the same
classes.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.ops.covering import covering_radius
from keras_gsp.ops.normalization import unit_ball
from training.pictures.palette import BLACK, PROTOTYPES, picture
from training.research.report import (
    ExperimentSettings,
    Table,
    mean_and_deviation,
    run_measurement,
    spread,
)

CLASS_COLORS = (*PROTOTYPES, "#8C6D46", "#9A9A9A")
MEASURES = {
    "map_at_r": "MAP@R",
    "covering_radius": "covering radius",
    "inter_class_distance": "inter-class distance",
}
# Samples per class among which the next proxies are chosen.
PROXIES, POOL_SIZE = 4, 16
SINGLE = "single problem"
START = "before training"
ALTERNATING = "CCP"


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Which images, and how proxies alternate."""

    train_images: int = 900
    """Images to learn from; at most as many are scored after training, and
    400 decide when a problem has converged."""
    num_problems: int = 4
    """Problems that alternate."""
    patience: int = 3
    """Evaluations without a gain after which a problem has converged."""
    steps_per_evaluation: int = 30
    """Training steps between two evaluations."""
    largest_steps: int = 6000
    """Training ends here even if not all problems have converged."""

    SMALL = {
        "seeds": (0,),
        "train_images": 200,
        "num_problems": 2,
        "patience": 1,
        "steps_per_evaluation": 1,
        "largest_steps": 60,
    }


def load_images(settings: Settings, seed: int) -> Any:
    """Training, validation and test images with labels, shuffled by seed."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[..., None] / 16.0).astype("float32")
    labels = digits.target.astype("int64")
    order = np.random.default_rng(seed).permutation(len(labels))
    ends = settings.train_images, settings.train_images + 400
    parts = np.split(order[: ends[1] + settings.train_images], ends)
    return [(images[rows], labels[rows]) for rows in parts]


def build_learner(image_shape: tuple, seed: int) -> Any:
    """Builds a small network into the plane, with proxies in it."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    encoder = keras.Sequential(
        [
            keras.Input(image_shape),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(2),
            gsp.layers.EmbeddingNormalization("ball"),
        ]
    )
    proxies = gsp.layers.ClassProxies(10, proxies_per_class=PROXIES)
    # Proxies alone, as in the paper's problem.
    learner = gsp.models.MetricLearner(
        encoder,
        proxies=proxies,
        anchor_weight=2e-4,
        in_batch_weight=0.0,
    )
    optimizer = gsp.models.proxy_optimizer(
        learner,
        keras.optimizers.Adam(1e-3),
        {"proxies": 1e-2},
    )
    loss = gsp.losses.ContrastiveLoss(negative_margin=0.5, normalization="ball")
    learner.compile(optimizer, loss=loss)
    return learner


def run(
    settings: Settings, seed: int, steps: int | None = None
) -> tuple[Any, list, int]:
    """Trains with alternating proxies, or a single problem of some steps.

    Returns start and problems, as `describe` describes them, and the steps.
    """
    train, validation, test = load_images(settings, seed)
    learner = build_learner(train[0].shape[1:], seed)
    found: list[dict] = []

    def record(proxies, next_proxies):
        found.append(
            describe(train, test, learner.encoder, proxies, next_proxies)
        )

    def at_begin(epoch, logs):
        """Describes the start, and each problem when the next one begins.

        Then the next proxies are in place, `last` are those of the problem.
        """
        now = np.array(learner.proxies.proxies)
        if not found:
            record(now, None)
        elif int(learner.anchored.problem) > len(found):
            record(last[0], now)
            if len(found) > settings.num_problems:
                learner.stop_training = True

    last = [np.zeros(0)]

    def at_end(epoch, logs):
        last[0] = np.array(learner.proxies.proxies)

    every = settings.steps_per_evaluation
    alternation = gsp.callbacks.ChanceConstrainedProgramming(
        train,
        pool_size=POOL_SIZE,
        patience=settings.patience if steps is None else None,
        seed=seed,
    )
    history = learner.fit(
        batches(train, seed),
        steps_per_epoch=every,
        epochs=(steps or settings.largest_steps) // every,
        callbacks=[
            gsp.callbacks.RetrievalEvaluation(validation, batch_size=400),
            alternation,
            keras.callbacks.LambdaCallback(
                on_epoch_begin=at_begin, on_epoch_end=at_end
            ),
        ],
        shuffle=False,
        verbose=0,
    )
    if len(found) <= settings.num_problems:
        record(last[0], None)
    return found[0], found[1:], every * len(history.epoch)


def batches(train: Any, seed: int) -> Any:
    """Endless batches, 10 classes x 4 images."""
    import tensorflow as tf

    images, labels = (tf.constant(array) for array in train)
    indices = gsp.data.class_balanced_batches(
        train[1], classes_per_batch=10, samples_per_class=4, seed=seed
    )
    return indices.map(
        lambda rows: (tf.gather(images, rows), tf.gather(labels, rows))
    )


def describe(
    train: Any, test: Any, encoder: Any, proxies: Any, next_proxies: Any
) -> dict:
    """Measures a converged problem, and keeps what is drawn."""
    points = encoder.predict(train[0], batch_size=450, verbose=0)
    unseen = encoder.predict(test[0], batch_size=450, verbose=0)
    classes = [points[train[1] == label] for label in range(10)]
    radii = [
        float(covering_radius(own, unit_ball(centers)))
        for own, centers in zip(classes, proxies, strict=True)
    ]
    centers = np.stack([own.mean(axis=0) for own in classes])
    between = np.linalg.norm(centers[:, None] - centers[None], axis=-1)
    scores = gsp.metrics.retrieval_scores(unseen, test[1])
    return {
        "map_at_r": scores["map_at_r"],
        "covering_radius": np.mean(radii),
        "inter_class_distance": between[np.triu_indices(10, 1)].mean(),
        "labels": train[1],
        "points": points,
        "proxies": np.asarray(unit_ball(proxies)),
        "next_proxies": next_proxies,
    }


def measure(settings: Settings) -> dict:
    """Every way with every seed, and the first seed's panels."""
    alternating, single, steps, starts = [], [], [], []
    for seed in settings.seeds:
        start, problems, taken = run(settings, seed)
        steps.append(taken)
        starts.append(start)
        alternating.append(problems)
        single.append(run(settings, seed, taken)[1][0])
    rows = [_row(START, starts), _row(SINGLE, single)]
    panels = {START: starts[0], SINGLE: single[0]}
    for number in range(settings.num_problems):
        name = f"{ALTERNATING}, problem {number + 1}"
        # A run may stop at `largest_steps` with fewer problems.
        reached = [p[number] for p in alternating if len(p) > number]
        if reached:
            rows.append(_row(name, reached))
        if number < len(alternating[0]):
            panels[name] = alternating[0][number]
    return {"steps": mean_and_deviation(steps), "rows": rows, "drawn": panels}


def _row(name, problems):
    return {"name": name, "runs": len(problems)} | {
        m: mean_and_deviation(p[m] for p in problems) for m in MEASURES
    }


def draw(path: Path, results: dict) -> None:
    """One panel a problem: samples, converged proxies, next proxies."""
    panels = results["drawn"]
    columns = math.ceil(len(panels) / 2)
    with picture(path, 2, columns, figsize=(4.4 * columns, 10.4)) as axes:
        for axis, (name, panel) in zip(axes.flat, panels.items(), strict=False):
            _draw_panel(axis, panel)
            axis.set_title(
                f"{name}\nMAP@R {panel['map_at_r']:.3f}, "
                f"radius {panel['covering_radius']:.2f}"
            )
            axis.set_xlabel("first dimension")
        for axis in axes[:, 0]:
            axis.set_ylabel("second dimension")
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        axes[0][0].figure.legend(
            handles=_legend(),
            loc="outside lower center",
            ncols=3,
        )


def _draw_panel(axis, panel):
    labels, points = panel["labels"], panel["points"]
    for label, color in enumerate(CLASS_COLORS):
        axis.plot(*points[labels == label].T, ".", ms=3, color=color, alpha=0.5)
        axis.plot(
            *panel["proxies"][label].T,
            "s",
            ms=8,
            color=color,
            mec=BLACK,
        )
        if panel["next_proxies"] is not None:
            new = panel["next_proxies"][label]
            axis.plot(*new.T, "o", ms=8, mfc="none", mec=color, mew=2)
    axis.set_aspect("equal")
    axis.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
    axis.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])


def _legend():
    from matplotlib.lines import Line2D

    looks: dict[str, dict[str, Any]] = {
        "training sample": {"marker": "."},
        "converged proxy or its sample": {"marker": "s", "ms": 8},
        "the next one": {"marker": "o", "ms": 8, "mfc": "none"},
    }
    return [
        Line2D([], [], ls="", color=BLACK, label=label, **look)
        for label, look in looks.items()
    ]


def tables(results: dict) -> list[Table]:
    """One row for the single problem and for each of those that alternate."""
    rows = [
        [row["name"], row["runs"]]
        + [spread(row[m], digits=3) for m in MEASURES]
        for row in results["rows"]
    ]
    return [Table(["proxies", "runs", *MEASURES.values()], rows)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
