r"""What does each way to adapt a pretrained network gain?

    python -m training.research.experiments.adapt --birds birds50.zip \
        --emoji emoji.zip --backbone-weights mobilenet_v2_035.weights.h5 \
        --teacher-weights mobilenet_v2_100.weights.h5

MobileNetV2 of width 0.35 on unseen classes, MAP@R and P@1 in %. Each row chooses
its learning rate among the same ones, on validation classes with the first seed;
then each seed is scored on the test classes. Gains are those of MAP@R
in points over the row named, query by query, with a 95 % interval over classes
and seeds. Rows of the first table train on images, with one seed, each in a
process of its own: its memory grows by the megabytes shown while it trains. The
others train heads on the frozen network's averaged features. In the third table
the teacher is a head on the features of MobileNetV2 1.0: the student's embedding
searches the student's gallery, or the teacher's.

Rates end at 0.1, where a few heads are best: with a grid that ended at 0.03 these
rows had the same MAP@R to 0.7 points. Heads are normalized, so that large rates
act alike.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.models.truncated import truncated
from training.recipes.batches import training_batches
from training.recipes.data import load_splits
from training.recipes.learner import build_learner
from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.research.benchmarks.retrieval import Memory
from training.research.report import (
    ExperimentSettings,
    Table,
    in_own_process,
    run_measurement,
)
from training.research.study_record import interval
from training.runs.scoring import embed

SIZES = (128, 64, 32, 16)
MEASURES = "map_at_r", "precision_at_1"
FACTS = "rate", "trained_parameters", "megabytes", "seconds"


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Data, weights, and the length of training."""

    birds: Path
    """Folder or archive of photographs, a folder for each class."""
    emoji: Path
    """The same with many classes of few images."""
    backbone_weights: Path
    """ImageNet weights of MobileNetV2 0.35."""
    teacher_weights: Path
    """ImageNet weights of MobileNetV2 1.0."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of heads on features."""
    rates: tuple[float, ...] = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
    """Learning rates to choose from."""
    steps: int = 300
    """Steps of a head."""
    tuning_steps: int = 150
    """Steps of training on images."""
    crop_size: int = 96
    """Side of the images."""

    SMALL = {
        "seeds": (0,),
        "rates": (1e-3,),
        "steps": 2,
        "tuning_steps": 2,
        "crop_size": 32,
    }


@dataclass(frozen=True)
class Sides:
    """Vectors and classes of the training, validation and test images."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def measure(settings: Settings) -> dict:
    """Trains all rows of the three tables, and of mining."""
    emoji = _vectors(settings, settings.emoji, 0.35, settings.backbone_weights)
    birds = _vectors(settings, settings.birds, 0.35, settings.backbone_weights)
    large = _vectors(settings, settings.birds, 1.0, settings.teacher_weights)
    return {
        "adapting": _adapting(settings, birds),
        "sizes": _sizes(settings, emoji),
        "distilling": _distilling(settings, birds, large),
        "mining": _mining(settings, emoji),
    }


def _adapting(settings, vectors):
    """Untrained, whitened, head, LoRA, everything: birds."""
    splits = load_splits(_tuning_recipe(settings))
    found = {"untrained": _scored(vectors.test)}
    for kind in ("pca", "learned"):
        found[f"whitened, {kind}"] = _scored(_whitened(vectors, kind))
    kinds: dict[str, dict[str, Any]] = {
        "head": {"frozen": "all"},
        "LoRA, rank 8": {"frozen": "batch-norm", "lora_rank": 8},
        "everything": {"frozen": "batch-norm"},
    }
    for name, own in kinds.items():
        found[name] = _tuned(settings, own, splits)
    return _rows(found, "head") + _rows(
        {name: found[name] for name in ("LoRA, rank 8", "everything")},
        "everything",
    )


def _tuning_recipe(settings, **own):
    recipe = _recipe(settings, settings.birds, settings.backbone_weights)
    return recipe.with_(
        cache_images=True,
        augmentation="none",
        steps=settings.tuning_steps,
        **own,
    )


def _tuned(settings, own, splits):
    """The test scores at the best rate, with what the training took."""
    trained = {
        rate: in_own_process(
            _trained, settings, own | {"learning_rate": rate}, splits
        )
        for rate in settings.rates
    }

    def scored(rate, side):
        return _scored((trained[rate][side], getattr(splits, side).labels))

    rate = _best(settings.rates, lambda one: scored(one, "validation"))
    facts = {name: trained[rate][name] for name in FACTS[1:]}
    return scored(rate, "test") | {"rate": rate} | facts


def _trained(settings, own, splits):
    """Trains on images; returns embeddings of two sides, and its cost."""
    # Recipes cannot be pickled.
    recipe = _tuning_recipe(settings, **own)
    learner = build_learner(
        recipe,
        num_classes=splits.train.num_classes,
        image_shape=splits.train.images.shape[1:],
    )
    memory = Memory()
    before, start = memory.peak, monotonic()
    learner.fit(
        training_batches(recipe, splits.train),
        steps_per_epoch=recipe.steps,
        shuffle=False,
        verbose=0,
    )
    encoder = learner.encoder
    counts = [int(np.prod(one.shape)) for one in encoder.trainable_variables]
    found: dict[str, Any] = {
        "seconds": monotonic() - start,
        "trained_parameters": sum(counts),
        "megabytes": memory.peak - before,
    }
    for side in ("validation", "test"):
        found[side] = embed(encoder, recipe, getattr(splits, side))
    return found


def _sizes(settings, vectors):
    """One head cut to each size, with and without Matryoshka; own heads."""
    inner = gsp.losses.MultiSimilarityLoss()
    kinds = {
        "plain": (inner, SIZES[0]),
        "Matryoshka": (gsp.losses.Matryoshka(inner, SIZES), SIZES[0]),
    }
    kinds |= {f"own {size}": (inner, size) for size in SIZES[1:]}
    trained = {
        name: _heads(settings, vectors, loss, size)
        for name, (loss, size) in kinds.items()
    }
    rows = []
    for size in SIZES:
        found = {}
        for name, heads in trained.items():
            if not name.startswith("own") or name == f"own {size}":
                found[name] = _of_heads(
                    heads,
                    vectors.test,
                    cut=lambda x, size=size: truncated(x, size, "l2"),
                )
        # A head of its own is the whole one where nothing is cut.
        base = f"own {size}" if size != SIZES[0] else "plain"
        rows += [
            row | {"name": f"{size}: {row['name']}"}
            for row in _rows(found, base)
        ]
    return rows


def _distilling(settings, small, large):
    """Small and large encoders search their own galleries and each other's."""
    inner = gsp.losses.MultiSimilarityLoss()
    kind = gsp.losses.DistillationLoss
    teacher = _heads(settings, large, inner, SIZES[0])
    plain = _heads(settings, small, inner, SIZES[0])
    found = {
        "large searches large": _of_heads(teacher, large.test),
        "small searches small, plain": _of_heads(plain, small.test),
    }
    for name, loss in {
        "regression": kind(),
        "relational": kind(regression=0.0, relational=1.0),
        "regression and metric loss": kind(inner),
    }.items():
        students = _heads(settings, small, loss, SIZES[0], teacher, large)
        found |= {
            f"small searches small, {name}": _of_heads(students, small.test),
            f"small searches large, {name}": _of_heads(
                students, small.test, gallery=(teacher, large.test[0])
            ),
        }
    return _rows(found, "small searches small, plain") + _rows(
        {"large searches large": found["large searches large"]}
        | {k: v for k, v in found.items() if "small searches large" in k},
        "large searches large",
    )


def _mining(settings, vectors):
    """A head from random batches, and from batches of confusable classes."""
    inner = gsp.losses.MultiSimilarityLoss()
    found, seconds = {}, {}
    for name, neighbors in (("random classes", None), ("HardClasses, 8", 8)):
        start = monotonic()
        heads = _heads(settings, vectors, inner, SIZES[0], neighbors=neighbors)
        found[name] = _of_heads(heads, vectors.test)
        seconds[name] = monotonic() - start
    rows = _rows(found, "random classes")
    return [row | {"seconds": seconds[row["name"]]} for row in rows]


def _heads(
    settings: Settings,
    vectors: Sides,
    loss: Any,
    size: int,
    teacher: Any = None,
    teacher_vectors: Any = None,
    neighbors: int | None = None,
) -> dict[str, Any]:
    """Trains a head for each seed, at the best rate of the first seed."""

    def train(rate, position):
        keras.utils.set_random_seed(settings.seeds[position])
        images, labels = vectors.train
        encoder = keras.Sequential(
            [
                keras.Input((images.shape[1],)),
                keras.layers.Dense(size, use_bias=False),
                gsp.layers.EmbeddingNormalization(),
            ]
        )
        learner = gsp.models.MetricLearner(encoder)
        learner.compile(keras.optimizers.AdamW(rate), loss=loss)
        targets: Any = labels
        if teacher is not None:
            gallery = _embedded(
                teacher["encoders"][position], teacher_vectors.train[0]
            )
            targets = {"label": labels, "teacher": gallery}
        hard = [
            gsp.callbacks.HardClasses(vectors.train, num_neighbors=one)
            for one in ([] if neighbors is None else [neighbors])
        ]
        learner.fit(
            _batches(images, targets, labels, settings.seeds[position], hard),
            epochs=3,
            steps_per_epoch=-(-settings.steps // 3),
            callbacks=hard,
            shuffle=False,
            verbose=0,
        )
        return encoder

    first = {rate: train(rate, 0) for rate in settings.rates}

    def validated(rate):
        images, labels = vectors.validation
        return _scored((_embedded(first[rate], images), labels))

    rate = _best(settings.rates, validated)
    others = range(1, len(settings.seeds))
    return {
        "rate": rate,
        "encoders": [first[rate], *(train(rate, one) for one in others)],
    }


def _batches(images, targets, labels, seed, hard):
    import tensorflow as tf

    indices = gsp.data.class_balanced_batches(
        labels,
        classes_per_batch=min(16, len(np.unique(labels))),
        samples_per_class=4,
        seed=seed,
        neighbors=hard[0] if hard else None,
    )
    images = tf.constant(images)
    targets = tf.nest.map_structure(tf.constant, targets)
    return indices.map(
        lambda rows: (
            tf.gather(images, rows),
            tf.nest.map_structure(lambda one: tf.gather(one, rows), targets),
        )
    ).prefetch(2)


def _of_heads(heads, side, *, cut=lambda x: x, gallery=None):
    """Test scores of every seed; `gallery`: heads and vectors searched."""
    images, labels = side
    own = [
        _scored(
            (cut(_embedded(encoder, images)), labels),
            None
            if gallery is None
            else _embedded(gallery[0]["encoders"][position], gallery[1]),
        )
        for position, encoder in enumerate(heads["encoders"])
    ]
    joined = {name: [scores[name][0] for scores in own] for name in MEASURES}
    return joined | {"labels": labels, "rate": heads["rate"]}


def _scored(side, gallery=None):
    """Scores of each query, a list of one seed."""
    embeddings, labels = side
    others: dict[str, Any] = {}
    if gallery is not None:
        # An image does not find itself.
        own = np.arange(len(labels))
        others = {"gallery_embeddings": gallery, "gallery_labels": labels}
        others |= {"query_groups": own, "gallery_groups": own}
    found = gsp.metrics.retrieval_scores(
        embeddings, labels, per_query=True, **others
    )["per_query"]
    return {"labels": labels} | {name: [found[name]] for name in MEASURES}


def _rows(found, base):
    """A row for each name, compared with `base`."""
    rows = []
    for name, own in found.items():
        row = {"name": name}
        row |= {one: float(np.nanmean(own[one])) for one in MEASURES}
        row |= {one: own[one] for one in FACTS if one in own}
        if name != base and base in found:
            ours, theirs = (one["map_at_r"] for one in (own, found[base]))
            seeds = max(len(ours), len(theirs))
            row["over"] = base
            row["gain"] = gsp.metrics.paired_difference(
                ours * (seeds // len(ours)),
                theirs * (seeds // len(theirs)),
                own["labels"],
            )
        rows.append(row)
    return rows


def _best(rates, scored):
    return max(rates, key=lambda one: np.nanmean(scored(one)["map_at_r"]))


def _embedded(encoder, vectors):
    return encoder.predict(vectors, batch_size=512, verbose=0)


def _whitened(vectors, kind):
    size = min(SIZES[0], vectors.train[0].shape[1])
    layer = gsp.layers.Whitening(size, shrinkage=0.1)
    images, labels = vectors.train
    layer.adapt(images, labels if kind == "learned" else None)
    return keras.ops.convert_to_numpy(layer(vectors.test[0])), vectors.test[1]


def _recipe(settings: Settings, data: Path, weights: Path) -> Recipe:
    return named("folder").with_(
        data_dir=str(data),
        backbone_weights=str(weights),
        crop_size=settings.crop_size,
        resize=settings.crop_size,
        loss="ms",
        classes_per_batch=8,
        samples_per_class=4,
        steps_per_evaluation=10**6,
        warmup_steps=0,
    )


def _vectors(settings, data, width, weights):
    """The unit averages of a frozen network's features."""
    recipe = _recipe(settings, data, weights).with_(
        backbone_width=width,
        frozen="all",
        cache_features=True,
        augmentation="none",
    )
    splits = load_splits(recipe)

    def averaged(images):
        rows = images.images.astype("float32").mean(axis=(1, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows, images.labels

    return Sides(*map(averaged, (splits.train, splits.validation, splits.test)))


def tables(results: dict) -> list[Table]:
    """The four tables."""
    titles = {
        "adapting": "Adapting, birds",
        "sizes": "Cutting the embedding, emoji",
        "distilling": "Asymmetric search, birds",
        "mining": "Batches of confusable classes, emoji",
    }
    forms = dict(zip(FACTS, ("{:g}", "{:,}", "{:,.0f}", "{:.0f}"), strict=True))
    found = []
    for key, title in titles.items():
        own = [one for one in forms if any(one in row for row in results[key])]
        rows = [
            [
                row["name"],
                f"{100 * row['map_at_r']:.1f}",
                f"{100 * row['precision_at_1']:.1f}",
                *(forms[n].format(row[n]) if n in row else "" for n in own),
                interval(row["gain"], 1) if "gain" in row else "",
                row.get("over", ""),
            ]
            for row in results[key]
        ]
        names = [one.replace("_", " ") for one in own]
        headings = ["", "MAP@R", "P@1", *names, "gain of MAP@R", "over"]
        found.append(Table(headings, rows, 1, title))
    return found


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
