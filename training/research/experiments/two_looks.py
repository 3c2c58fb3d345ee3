"""What does a second look gain, and where must it look?

    python -m training.research.experiments.two_looks
    python -m training.research.experiments.two_looks --data-dir birds.zip --backbone-weights FILE

A pooling with weights finds the subject; the box is cropped and embedded again
(`gsp.models.TwoLooks`). By default letters among symbols: the network is
pretrained on single characters and frozen, seeds take turns with the kept ones
(`docs/results/weights`), the box is the window of half the
canvas with most pooled mass, `hit` the share of test images in whose letter's cell
its middle lies, and the second look a head with average pooling, trained on crops. With
`--data-dir`, photographs: MobileNetV2, frozen, folds over the classes; the box is the
square around the central 80 % of the pooled mass, and the second look is the encoder
of the first.

Each head starts from PCA of its features, and its learning rate and its weights
(those before the first step included) are the best on validation classes, as is
the choice between first look, second look and the sum of both. `raw` rows train
nothing: the best of average, maximum and GeM (powers 3 and 5) on validation
classes, their boxes from GSP behind PCA, and the same after learned whitening, whose
shrinkage is the best on validation classes. Scores are MAP@R and P@1 in % on classes
that nothing has seen but the pretrained network. Gains are paired, over the choice
without a box, with 95 % intervals over classes and seeds or folds.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.models.two_looks import Boxes, Crop
from keras_gsp.retrieval.index.columns import blocks_of
from training.datasets import glyphs
from training.datasets.collage import load_pictures
from training.pictures.pooling_weights import pooling_weights
from training.recipes.learner import build_backbone
from training.recipes.recipe import Recipe
from training.research.experiments.heads import SIDES, best_head, head, scores
from training.research.experiments.whitening import fold_sides
from training.research.report import (
    ExperimentSettings,
    Table,
    gain_text,
    run_measurement,
)
from training.research.studies import STUDIES
from training.runs.raw_baseline import pooled, whitenings

KEYS = "hit", "first", "second", "sum", "map_at_r", "precision_at_1"
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
    """Weights of MobileNetV2, for photographs."""
    folds: int = 4
    """Folds over the classes of a folder; one for each seed, at most."""
    pixels: int = 224
    """Height and width of a photograph."""
    steps: int = 600
    """Training steps of 16 x 4 letters or 8 x 4 photographs."""
    rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    """Learning rates, chosen on validation classes."""
    heads: bool = True
    """Whether heads are trained; without, there are `raw` rows alone."""
    poolings: tuple[str, ...] = ("GSP", "affine costs", "DELF", "SimPool", "EP")
    """Poolings that find boxes."""

    SMALL = {
        **{"seeds": (0,), "steps": 4, "rates": (1e-3,)},
        "poolings": ("GSP", "DELF"),
    }


@dataclass(frozen=True)
class Task:
    """Images and labels by side, and how to look at them."""

    images: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    true_boxes: dict[str, np.ndarray]
    network: Recipe
    side: int  # of crops, pixels
    window: float | None
    classes_per_batch: int


def letters(settings: Settings, seed: int) -> Task:
    """Letters among symbols; seeds take turns with the kept networks."""
    kept = STUDIES["rivals"].kept
    sizes: Any = SMALL_LETTERS if settings.smoke else {}
    splits = glyphs.load(**sizes)
    boxes = {}
    for side in SIDES:
        cells = glyphs.letter_cells(side, **sizes)
        start = np.stack([cells // 2, cells % 2], 1) / 2
        boxes[side] = np.concatenate([start, start + 0.5], 1)
    network = Recipe.of(
        backbone="glyph-cnn",
        backbone_weights=str(kept[seed % len(kept)]),
        frozen="all",
    )
    images, labels = (
        {side: getattr(getattr(splits, side), name) for side in SIDES}
        for name in ("images", "labels")
    )
    return Task(images, labels, boxes, network, glyphs.CELL, 0.5, 16)


def photographs(settings: Settings, fold: int) -> Task:
    """A fold over the classes of a folder."""
    size, weights = settings.pixels, settings.backbone_weights
    data = load_pictures(str(settings.data_dir), size)
    sides = fold_sides(data.labels, max(settings.folds, 2), fold, 6)
    network = Recipe.of(
        backbone="mobilenet-v2",
        backbone_weights=weights and str(weights),
        frozen="all",
    )
    return Task(
        {side: data.images[rows] for side, rows in sides.items()},
        {side: data.labels[rows] for side, rows in sides.items()},
        *({}, network, size, None, 8),
    )


def started(maps: dict[str, np.ndarray], pooling: Any) -> keras.Model:
    """A head of 128 numbers on feature maps, started from PCA."""
    encoder = head(maps["train"].shape[1:], pooling)
    gsp.models.initialize_projection(encoder, maps["train"])
    return encoder


def embedded(encoder: keras.Model, maps: dict) -> dict[str, np.ndarray]:
    """Embeddings of validation and test."""
    return {s: encoder.predict(maps[s], verbose=0) for s in SIDES[1:]}


def each(function: Callable, *parts: dict) -> dict[str, Any]:
    """Applies a function to what each side has."""
    return {s: function(*(part[s] for part in parts)) for s in parts[0]}


def weights_of(encoder: keras.Model, maps: dict) -> dict[str, np.ndarray]:
    """Pooling weights (images, height, width) of a head."""
    weights = each(lambda x: pooling_weights(encoder, x).astype("f4"), maps)
    return each(lambda x: x.mean(-1) if x.ndim == 4 else x, weights)


def moved(boxes: np.ndarray, shares: Any) -> np.ndarray:
    """Boxes of the same sizes, at shares of the way across the image."""
    height_width = boxes[:, 2:] - boxes[:, :2]
    start = (1.0 - height_width) * shares(height_width.shape)
    return np.concatenate([start, start + height_width], axis=1)


class Looks:
    """The looks of one task and seed; rows by name."""

    def __init__(self, task: Task, settings: Settings, seed: int) -> None:
        self.task, self.settings, self.seed = task, settings, seed
        self.rows: dict[str, dict] = {}
        temperature = 20.0 if task.window is None else 80.0
        gsp_layer = partial(
            gsp.layers.GeneralizedSumPooling, 64, 0.1, temperature
        )
        self.poolings: dict[str, Callable[[], Any]] = {
            "GSP": gsp_layer,
            "affine costs": partial(gsp_layer, use_affine_costs=True),
            "DELF": gsp.layers.DELFPooling,
            "SimPool": gsp.layers.SimPooling,
            "EP": lambda: gsp.layers.EfficientProbingPooling(),
        }
        self.backbone = cache(partial(build_backbone, task.network))
        self.maps = each(self.features, task.images)

    def measure(self) -> dict[str, dict]:
        """Measures every row."""
        self.raw()
        if not self.settings.heads:
            return self.rows
        average = self.trained(self.maps, lambda: None)
        self.add("average, whole", embedded(average, self.maps))
        heads, weights, seed = {}, {}, self.seed
        for name in self.settings.poolings:
            heads[name] = self.trained(self.maps, self.poolings[name])
            self.add(f"{name}, whole", embedded(heads[name], self.maps))
            weights[name] = weights_of(heads[name], self.maps)
        weights["activation norm"] = each(
            lambda maps: np.square(maps.astype("float32")).sum(-1), self.maps
        )
        boxes = {name: self.boxes(maps) for name, maps in weights.items()}
        for name, shares in (
            ("center", lambda shape: 0.5),
            ("random", lambda shape: np.random.default_rng(seed).random(shape)),
        ):
            boxes[name] = each(partial(moved, shares=shares), boxes["GSP"])
        first = embedded(heads["GSP"], self.maps)
        for name, crops in boxes.items():
            if self.task.window is None:
                near = self.near_maps({s: crops[s] for s in SIDES[1:]})
                second = heads["GSP"]
            else:
                near = self.near_maps(crops)
                second = self.trained(near, lambda: None)
            again = embedded(second, near)
            self.add(f"box of {name}", first, again, crops["test"])
        if true := self.task.true_boxes:  # An upper bound.
            near = self.near_maps(true)
            best = self.trained(near, lambda: None)
            self.add("true cell", embedded(best, near))
        return self.rows

    def raw(self) -> None:
        """Rows without training: one look, and two by GSP behind PCA."""
        keras.utils.set_random_seed(self.seed)
        untrained = started(self.maps, self.poolings["GSP"]())
        maps = {side: self.maps[side] for side in SIDES[1:]}
        near = self.near_maps(self.boxes(weights_of(untrained, maps)))
        far, close = each(pooled, maps), each(pooled, near)
        labels = self.task.labels["validation"]
        best = max(
            far["validation"],
            key=lambda k: scores(far["validation"][k], labels)["map_at_r"],
        )
        looks = [each(lambda rows: rows[best], look) for look in (far, close)]
        self.add("raw best pooling, whole", looks[0])
        self.add("raw best pooling, two looks", *looks)
        looks = self.whitened(best, looks)
        self.add("raw whitened, whole", looks[0])
        self.add("raw whitened, two looks", *looks)

    def whitened(self, pooling: str, looks: list[dict]) -> list[dict]:
        """Both looks after learned whitening of the first, to 128 numbers."""
        labels = self.task.labels
        rows: dict[Any, Any] = {
            (n, s): x for n, look in enumerate(looks) for s, x in look.items()
        }
        rows["train"] = pooled(self.maps["train"])[pooling]
        forms = whitenings(self.task.network, rows, labels["train"])
        white = max(
            (white for _, white in forms),
            key=lambda white: scores(
                white[0, "validation"], labels["validation"]
            )["map_at_r"],
        )
        return [{s: white[n, s] for s in look} for n, look in enumerate(looks)]

    def features(self, images: np.ndarray) -> np.ndarray:
        """Feature maps, float16."""
        backbone = self.backbone(images.shape[1:])
        maps = backbone.predict(images, batch_size=64, verbose=0)
        return maps.astype("float16")

    def boxes(self, weights: dict) -> dict[str, np.ndarray]:
        """Boxes (images, 4) by the rule of `TwoLooks`."""
        rule, images = Boxes(self.task.window, 0.8), self.task.images["test"]
        boxes = each(lambda x: rule([images[:1, ..., :1], x]), weights)
        return each(ops.convert_to_numpy, boxes)

    def near_maps(self, boxes: dict) -> dict[str, np.ndarray]:
        """Feature maps of the crops."""
        return each(
            lambda boxes, images: self.features(self.cropped(boxes, images)),
            boxes,
            self.task.images,
        )

    def cropped(self, boxes: np.ndarray, images: np.ndarray) -> np.ndarray:
        """The boxes of images, uint8, of the size that the network sees."""
        crop = Crop((self.task.side, self.task.side))
        crops = [
            crop([images[rows].astype("float32"), boxes[rows]])
            for rows in blocks_of(np.arange(len(images)), 256)
        ]
        return np.rint(np.concatenate(crops)).astype("u1")

    def trained(self, maps: dict, pooling: Callable) -> keras.Model:
        """The head with the best rate and weights on validation classes."""
        keras.utils.set_random_seed(self.seed)
        encoder = started(maps, pooling())
        best_head(
            encoder,
            maps,
            self.task.labels,
            gsp.losses.ContrastiveLoss(0.0, 0.3841),
            rates=self.settings.rates,
            steps=self.settings.steps,
            classes_per_batch=self.task.classes_per_batch,
            seed=self.seed,
        )
        return encoder

    def add(
        self, name: str, first: dict, second: Any = None, boxes: Any = None
    ) -> None:
        """Adds a row; validation chooses between the looks and their sum."""
        looks = {"first": first}
        if second is not None:
            looks["second"] = second
            if first["test"].shape == second["test"].shape:
                looks["sum"] = each(np.add, first, second)
        scored = {
            k: each(scores, x, self.task.labels) for k, x in looks.items()
        }
        chosen = max(scored, key=lambda k: scored[k]["validation"]["map_at_r"])
        best = scored[chosen]["test"]
        row = {k: x["test"]["map_at_r"] for k, x in scored.items()}
        row |= {k: best[k] for k in ("map_at_r", "precision_at_1")}
        row["queries"] = best["per_query"]["map_at_r"]
        if boxes is not None and self.task.true_boxes:
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            true = self.task.true_boxes["test"]
            is_inside = (middle > true[:, :2]) & (middle < true[:, 2:])
            row["hit"] = is_inside.all(axis=1).mean()
        self.rows[name] = row


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table: MAP@R of each look, and the gain of the chosen one."""
    runs, classes = [], []
    for seed in tqdm(settings.seeds, desc="seeds"):
        if settings.data_dir is None:
            task = letters(settings, seed)
        else:
            task = photographs(settings, seed % max(settings.folds, 2))
        runs.append(Looks(task, settings, seed).measure())
        classes.append(task.labels["test"])
    headings = ["", "hit %", "first", "second", "both", "chosen", "P@1", "gain"]
    yield Table(headings, [_row(name, runs, classes) for name in runs[0]])


def _row(name, runs, classes):
    """Means over runs, and the paired gain over one look."""
    means = [
        f"{100 * np.mean([run[name][key] for run in runs]):.1f}"
        if key in runs[0][name]
        else ""
        for key in KEYS
    ]
    base = f"{name.partition(',')[0] if name[:3] == 'raw' else 'GSP'}, whole"
    if name == base:
        return [name, *means, ""]
    scored, others = (
        [run[row]["queries"] for run in runs] for row in (name, base)
    )
    gain = gsp.metrics.paired_difference(scored, others, classes)
    return [name, *means, gain_text(gain)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
