"""What does a second look gain, and where must it look?

    python -m training.research.experiments.two_looks
    python -m training.research.experiments.two_looks --data-dir birds.zip --backbone-weights FILE

A pooling with weights finds the subject; the box is cropped and embedded again
(`gsp.models.TwoLooks`). By default letters among symbols: the network is
pretrained on single characters and frozen, the box is the window of half the
canvas with most pooled mass, `hit` the share of test images whose letter it
holds, and the second look a head with average pooling, trained on crops. With
`--data-dir`, photographs: MobileNetV2 (width 1), frozen, folds over the classes;
the box is the square around the central 80 % of the pooled mass, and the second
look is the encoder of the first.

Each head starts from PCA of its features, and its learning rate and its weights
(those before the first step included) are the best on validation classes, as is
the choice between first look, second look and the sum of both. `raw` rows train
nothing: the best of average, maximum and GeM (powers 3 and 5) on validation
classes, their boxes from GSP behind PCA; in `box of GSP, raw features` the box
is the trained head's, and the best raw pooling embeds the crop. Scores are MAP@R
and P@1 in % on classes that nothing has seen but the pretrained network. Gains are
paired, over the choice without a box, with 95 % intervals over classes and seeds or
folds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.models.two_looks import Boxes, Crop
from training.datasets import glyphs
from training.datasets.collage import load_pictures
from training.pictures.pooling_weights import pooling_weights
from training.recipes.backbone import build_backbone
from training.recipes.glyph_network import CHARACTERS
from training.recipes.recipe import Recipe
from training.research.report import ExperimentSettings, Table, run_measurement
from training.runs.raw_baseline import pooled

SIDES = "train", "validation", "test"
EVALUATIONS = 4
SMALL_LETTERS = {
    **{"train_samples": 8, "test_samples": 3, "train_classes": 20},
    **{"validation_classes": 5, "test_classes": 5},
}


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Data, heads and their training."""

    data_dir: Path | None = None
    """Folder of photographs; letters among symbols by default."""
    backbone_weights: Path | None = None
    """Weights of MobileNetV2 (width 1), for photographs."""
    folds: int = 4
    """Folds over the classes of a folder; one for each seed, at most."""
    pixels: int = 224
    """Height and width of a photograph."""
    steps: int = 600
    """Training steps of 16 x 4 letters or 8 x 4 photographs."""
    rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    """Learning rates, chosen on validation classes."""
    rivals: bool = True
    """Whether other poolings find boxes too."""

    SMALL = {"seeds": (0,), "steps": 4, "rates": (1e-3,), "rivals": False}


@dataclass(frozen=True)
class Task:
    """Images and labels by side, and how to look at them."""

    images: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    true_boxes: dict[str, np.ndarray]
    network: Recipe
    crop_size: tuple[int, int]
    window: float | None
    classes_per_batch: int


FROZEN: dict[str, dict[str, Any]] = {
    name: {"backbone": name, "backbone_width": 1.0, "frozen": "all"}
    for name in ("glyph-cnn", "mobilenet-v2")
}
# All but average have weights.
POOLINGS: dict[str, Callable[[], Any]] = {
    "average": lambda: None,
    "GSP": lambda: gsp.layers.GeneralizedSumPooling(64, 0.1, 20.0),
    "DELF": gsp.layers.DELFPooling,
    "SimPool": gsp.layers.SimPooling,
    "attention": gsp.layers.AttentionPooling,
}


def letters(settings: Settings) -> Task:
    """Letters among symbols, and a network that knows single characters."""
    sizes: Any = SMALL_LETTERS if settings.smoke else {}
    splits = glyphs.load(**sizes)
    cells = {side: glyphs.letter_cells(side, **sizes) for side in SIDES}
    starts = {k: np.stack([c // 2, c % 2], 1) / 2 for k, c in cells.items()}
    weights = None if settings.smoke else CHARACTERS
    return Task(
        {side: getattr(splits, side).images for side in SIDES},
        {side: getattr(splits, side).labels for side in SIDES},
        {k: np.concatenate([s, s + 0.5], 1) for k, s in starts.items()},
        Recipe.of(backbone_weights=weights, **FROZEN["glyph-cnn"]),
        (glyphs.CELL, glyphs.CELL),
        *(0.5, 16),
    )


def photographs(settings: Settings, fold: int) -> Task:
    """A fold: a share of the classes tests, a sixth of the rest validates."""
    size = settings.pixels
    found = load_pictures(str(settings.data_dir), size)
    order = np.random.default_rng(0).permutation(found.num_classes)
    tests = np.array_split(order, max(settings.folds, 2))[fold]
    others = np.random.default_rng(fold).permutation(np.setdiff1d(order, tests))
    count = max(2, len(others) // 6)
    classes = zip(SIDES, (others[count:], others[:count], tests), strict=True)
    chosen = {side: np.isin(found.labels, own) for side, own in classes}
    weights = settings.backbone_weights and str(settings.backbone_weights)
    return Task(
        {side: found.images[is_in] for side, is_in in chosen.items()},
        {side: found.labels[is_in] for side, is_in in chosen.items()},
        {},
        Recipe.of(backbone_weights=weights, **FROZEN["mobilenet-v2"]),
        (size, size),
        *(None, 8),
    )


def scores(embeddings: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Scores of l2-normalized embeddings, for each query too."""
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    rows = embeddings / np.maximum(lengths, 1e-12)
    return gsp.metrics.retrieval_scores(rows, labels, per_query=True)


def head(maps: dict[str, np.ndarray], pooling: Any) -> keras.Model:
    """A head of 128 numbers on feature maps, started from PCA."""
    features = keras.Input(maps["train"].shape[1:])
    made = gsp.models.build_encoder(
        keras.Model(features, features),
        embedding_size=min(128, features.shape[-1]),
        pooling=pooling,
    )
    gsp.models.start_projection(made, maps["train"])
    return made


def embedded(made: keras.Model, maps: dict) -> dict[str, np.ndarray]:
    """Embeddings of validation and test."""
    return {side: made.predict(maps[side], verbose=0) for side in SIDES[1:]}


def weights_of(made: keras.Model, maps: np.ndarray) -> np.ndarray:
    """Pooling weights (images, height, width) of a head."""
    weights = pooling_weights(made, maps).astype("float32")
    return weights.mean(-1) if weights.ndim == 4 else weights


def moved(boxes: dict, shares: Any) -> dict[str, np.ndarray]:
    """Boxes of the same sizes, at shares of the way across the image."""
    found = {}
    for side, own in boxes.items():
        sides = own[:, 2:] - own[:, :2]
        start = (1.0 - sides) * shares(sides.shape)
        found[side] = np.concatenate([start, start + sides], axis=1)
    return found


class Looks:
    """The looks of one task and seed; rows by name."""

    def __init__(self, task: Task, settings: Settings, seed: int) -> None:
        self.task, self.settings, self.seed = task, settings, seed
        self.rows: dict[str, dict] = {}
        self.poolings = dict(POOLINGS)
        if task.window is not None:
            self.poolings["GSP"] = lambda: gsp.layers.GeneralizedSumPooling(
                64, 0.1, 80.0
            )
        self.backbone = cache(
            lambda size: build_backbone(task.network, (*size, 3))
        )
        self.maps = {k: self.features(v) for k, v in task.images.items()}

    def measure(self) -> dict[str, dict]:
        """Measures every row."""
        heads, weights = {}, {}
        for name, pooling in self.poolings.items():
            if name not in ("average", "GSP") and not self.settings.rivals:
                continue
            heads[name] = made = self.trained(self.maps, pooling)
            self.add(f"{name}, whole", embedded(made, self.maps))
            if name != "average":
                weights[name] = {
                    k: weights_of(made, maps) for k, maps in self.maps.items()
                }
        weights["activation norm"] = {
            k: np.square(maps.astype("float32")).sum(-1)
            for k, maps in self.maps.items()
        }
        boxes = {name: self.boxes(one) for name, one in weights.items()}
        boxes["center"] = moved(boxes["GSP"], lambda shape: 0.5)
        boxes["random"] = moved(
            boxes["GSP"],
            lambda shape: np.random.default_rng(self.seed).random(shape),
        )
        self.raw()
        first = embedded(heads["GSP"], self.maps)
        for name, own in boxes.items():
            near, second = self.near_maps(own), heads["GSP"]
            if self.task.window is not None:
                second = self.trained(near, lambda: None)
            again = embedded(second, near)
            self.add(f"box of {name}", first, again, own["test"])
            if name == "GSP":
                close = {side: pooled(near[side]) for side in SIDES[1:]}
                raw = self.best_raw(close)
                again = {side: rows[raw] for side, rows in close.items()}
                self.add("box of GSP, raw features", first, again)
        if self.task.true_boxes:  # An upper bound.
            near = self.near_maps(self.task.true_boxes)
            made = self.trained(near, lambda: None)
            self.add("true cell", embedded(made, near))
        return self.rows

    def raw(self) -> None:
        """Rows without training: one look, and two by GSP behind PCA."""
        keras.utils.set_random_seed(self.seed)
        untrained = head(self.maps, self.poolings["GSP"]())
        maps = {side: self.maps[side] for side in SIDES[1:]}
        near = self.near_maps(
            self.boxes({k: weights_of(untrained, m) for k, m in maps.items()})
        )
        far, close = (
            {side: pooled(one) for side, one in own.items()}
            for own in (maps, near)
        )
        best = self.best_raw(far)
        for title, name in (("average", "average"), ("best pooling", best)):
            first, again = (
                {side: rows[name] for side, rows in looks.items()}
                for looks in (far, close)
            )
            self.add(f"raw {title}, whole", first)
            self.add(f"raw {title}, two looks", first, again)

    def best_raw(self, rows: dict[str, dict]) -> str:
        """The pooling of raw features that is best on validation classes."""
        labels, found = self.task.labels["validation"], rows["validation"]
        each = {k: scores(v, labels)["map_at_r"] for k, v in found.items()}
        return max(each, key=each.__getitem__)

    def features(self, images: np.ndarray) -> np.ndarray:
        """Feature maps, float16."""
        backbone = self.backbone(images.shape[1:3])
        found = backbone.predict(images, batch_size=64, verbose=0)
        return found.astype("float16")

    def boxes(self, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Boxes (images, 4) by the rule of `TwoLooks`."""
        rule = Boxes(self.task.window, 0.8)
        pixels = self.task.images
        return {
            side: ops.convert_to_numpy(rule([pixels[side][..., :1], own]))
            for side, own in weights.items()
        }

    def near_maps(self, boxes: dict) -> dict[str, np.ndarray]:
        """Feature maps of the crops."""
        crop, maps = Crop(self.task.crop_size), {}
        for side, own in boxes.items():
            images, found = self.task.images[side], []
            for start in range(0, len(images), 256):
                some = slice(start, start + 256)
                pixels = crop([images[some].astype("float32"), own[some]])
                found.append(np.rint(ops.convert_to_numpy(pixels)))
            maps[side] = self.features(np.concatenate(found).astype("uint8"))
        return maps

    def trained(self, maps: dict, pooling: Callable) -> keras.Model:
        """The head with the best rate and weights on validation classes."""
        steps, labels = self.settings.steps, self.task.labels
        best: Any = (-1.0, None)
        made: Any = None
        for rate in self.settings.rates:
            keras.utils.set_random_seed(self.seed)
            made = head(maps, pooling())
            learner = gsp.models.MetricLearner(made)
            schedule = keras.optimizers.schedules.CosineDecay(rate, steps)
            learner.compile(
                keras.optimizers.AdamW(schedule, weight_decay=1e-4),
                loss=gsp.losses.ContrastiveLoss(0.0, 0.3841),
            )
            indices = gsp.data.class_balanced_batches(
                labels["train"],
                classes_per_batch=self.task.classes_per_batch,
                samples_per_class=4,
                seed=self.seed,
            )
            every = max(1, steps // EVALUATIONS)
            for step, chosen in enumerate(indices.take(steps + 1)):
                if step % every == 0:
                    rows = made.predict(maps["validation"], verbose=0)
                    found = scores(rows, labels["validation"])["map_at_r"]
                    if found > best[0]:
                        best = found, made.get_weights()
                some = np.asarray(chosen)
                learner.train_on_batch(
                    maps["train"][some], labels["train"][some]
                )
        made.set_weights(best[1])
        return made

    def add(
        self, name: str, first: dict, second: Any = None, boxes: Any = None
    ) -> None:
        """Adds a row; validation chooses between the looks and their sum."""
        looks = {"first": first}
        if second is not None:
            looks["second"] = second
            if first["test"].shape == second["test"].shape:
                looks["sum"] = {k: first[k] + second[k] for k in first}
        found = {
            look: {k: scores(one[k], self.task.labels[k]) for k in one}
            for look, one in looks.items()
        }
        validated = {k: v["validation"]["map_at_r"] for k, v in found.items()}
        chosen = max(validated, key=validated.__getitem__)
        best = found[chosen]["test"]
        row = {k: 100 * one["test"]["map_at_r"] for k, one in found.items()}
        row |= {
            "chosen": chosen,
            "map_at_r": 100 * best["map_at_r"],
            "precision_at_1": 100 * best["precision_at_1"],
            "queries": 100 * best["per_query"]["map_at_r"],
        }
        if boxes is not None and self.task.true_boxes:
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            true = self.task.true_boxes["test"]
            is_inside = (middle > true[:, :2]) & (middle < true[:, 2:])
            row["hit"] = 100 * float(is_inside.all(axis=1).mean())
        self.rows[name] = row


def measure(settings: Settings) -> dict:
    """Runs every seed; rows with their mean and paired gains."""
    runs, classes = [], []
    for number, seed in enumerate(tqdm(settings.seeds, desc="seeds")):
        fold = number % max(settings.folds, 2)
        is_folder = settings.data_dir is not None
        task = photographs(settings, fold) if is_folder else letters(settings)
        runs.append(Looks(task, settings, seed).measure())
        classes.append(task.labels["test"])
    return {"rows": [_joined(name, runs, classes) for name in runs[0]]}


def _joined(name, runs, classes):
    own = [run[name] for run in runs]
    row: dict[str, Any] = {"name": name, "chosen": [o["chosen"] for o in own]}
    for key in ("hit", "first", "second", "sum", "map_at_r", "precision_at_1"):
        if key in own[0]:
            row[key] = float(np.mean([one[key] for one in own]))
    kind = name.partition(",")[0] if name.startswith("raw") else "GSP"
    base = f"{kind}, whole"
    if name != base:
        found = gsp.metrics.paired_difference(
            [one["queries"] for one in own],
            [run[base]["queries"] for run in runs],
            classes,
        )
        row["over"] = base
        row["gain"] = [found[key] for key in ("difference", "low", "high")]
    return row


def tables(results: dict) -> list[Table]:
    """One table, MAP@R of each look and the gain of what validation chose."""
    headings = ["", "hit %", "first", "second", "both", "chosen", "P@1", "gain"]
    keys = "hit", "first", "second", "sum", "map_at_r", "precision_at_1"
    rows = []
    for row in results["rows"]:
        cells = [f"{row[key]:.1f}" if key in row else "" for key in keys]
        gain = ""
        if "gain" in row:
            difference, low, high = row["gain"]
            gain = f"{difference:+.1f} [{low:.1f}, {high:.1f}]"
        rows.append([row["name"], *cells, gain])
    return [Table(headings, rows, 1)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
