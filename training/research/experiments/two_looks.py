"""What does a second look gain, and where must it look?

    python -m training.research.experiments.two_looks
    python -m training.research.experiments.two_looks --data-dir birds.zip --backbone-weights FILE
    python -m training.research.experiments.two_looks --collages FOLDER --pixels 128 --backbone-weights FILE

A pooling with weights finds the subject; the box is cropped and embedded again
(`gsp.models.TwoLooks`). By default letters among symbols: the network is
pretrained on single characters and frozen, the box is the window of half the
canvas with most pooled mass, `hit` the share of test images in whose letter's cell
its middle lies, and the second look a head with average pooling, trained on crops. With
`--data-dir`, photographs: MobileNetV2 (width 1), frozen, folds over the classes;
the box is the square around the central 80 % of the pooled mass, and the second
look is the encoder of the first. With `--collages`, each picture of a folder among
three others: MobileNetV2, window and heads as for letters, on enlarged crops.

Each head starts from PCA of its features, and its learning rate and its weights
(those before the first step included) are the best on validation classes, as is
the choice between first look, second look and the sum of both. `raw` rows train
nothing: the best of average, maximum and GeM (powers 3 and 5) on validation
classes, their boxes from GSP behind PCA, and the same after learned whitening, whose
shrinkage is the best on validation classes; in `box of GSP, raw features` the box
is the trained head's, and the best raw pooling embeds the crop. With `--variants`,
other boxes of the trained head (more or less of the mass, the crop of WS-DAN
around all above half the largest weight, a first look at half the pixels or at both
sizes, the median of the boxes of all prototypes), a third look into the second
(`first` is then the sum of two), queries alone that look twice, and a head trained
on its own crops too. With `--seen`, the network sees photographs and crops at
fewer pixels than they have, and one row crops out of what it saw. Scores are MAP@R
and P@1 in % on classes that nothing has seen but the pretrained network. Gains are
paired, over the choice without a box, with 95 % intervals over classes and seeds or
folds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import joblib
import keras
import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.models.encoder import features_before
from keras_gsp.models.two_looks import Boxes, Crop
from keras_gsp.retrieval.index.columns import blocks_of
from training.datasets import glyphs
from training.datasets.collage import collage_splits, load_pictures
from training.pictures.framed_image import draw_image, outline
from training.pictures.palette import BLACK, BLUE, VERMILION, picture
from training.pictures.pooling_weights import (
    pooling_layer,
    pooling_weights,
)
from training.recipes.backbone import build_backbone
from training.recipes.glyph_network import CHARACTERS
from training.recipes.recipe import Recipe
from training.research.report import ExperimentSettings, Table, run_measurement
from training.runs.raw_baseline import SHRINKAGES, pooled

SIDES = "train", "validation", "test"
KEYS = "hit", "first", "second", "sum", "map_at_r", "precision_at_1"
EVALUATIONS = 4
SHOWN, NEIGHBORS = 2, 6
SMALL_LETTERS = {
    **{"train_samples": 8, "test_samples": 3, "train_classes": 20},
    **{"validation_classes": 5, "test_classes": 5},
}


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Data, heads and their training."""

    data_dir: Path | None = None
    """Folder of photographs; letters among symbols by default."""
    collages: Path | None = None
    """Folder of pictures to find among others of it."""
    backbone_weights: Path | None = None
    """Weights of MobileNetV2, for photographs and collages."""
    images_per_class: int | None = None
    """Images of each class of `collages`; all by default."""
    width: float = 1.0
    """Width of MobileNetV2."""
    folds: int = 4
    """Folds over the classes of a folder; one for each seed, at most."""
    pixels: int = 224
    """Height and width of a photograph or a collage."""
    seen: int | None = None
    """Those that the network sees of a photograph or its crop; by default all."""
    steps: int = 600
    """Training steps of 16 x 4 letters or 8 x 4 photographs."""
    rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    """Learning rates, chosen on validation classes."""
    heads: bool = True
    """Whether heads are trained; without, there are `raw` rows alone."""
    rivals: bool = True
    """Whether other poolings find boxes too."""
    variants: bool = False
    """Whether GSP has other boxes and further looks too, on photographs."""
    keep: Path | None = None
    """Folder of finished seeds, from which the same command goes on."""

    SMALL = {"seeds": (0,), "steps": 4, "rates": (1e-3,), "rivals": False}


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


# All but average have weights.
POOLINGS: dict[str, Callable[[], Any]] = {
    "average": lambda: None,
    "GSP": gsp.layers.GeneralizedSumPooling,
    "DELF": gsp.layers.DELFPooling,
    "SimPool": gsp.layers.SimPooling,
    "attention": gsp.layers.AttentionPooling,
    "CroW": gsp.layers.CroWPooling,
}


def letters(settings: Settings) -> Task:
    """Letters among symbols, and a network that knows single characters."""
    sizes: Any = SMALL_LETTERS if settings.smoke else {}
    splits = glyphs.load(**sizes)
    cells = {side: glyphs.letter_cells(side, **sizes) for side in SIDES}
    network = frozen("glyph-cnn", None if settings.smoke else CHARACTERS)
    return among_others(splits, cells, network, glyphs.CELL, 16)


def collages(settings: Settings, seed: int) -> Task:
    """Pictures in one of four cells, and a network that knows ImageNet."""
    size = settings.pixels
    given: Any = {
        "canvas_size": size,
        "images_per_class": settings.images_per_class,
        "seed": seed,
    }
    splits, alone = (
        collage_splits(str(settings.collages), distractors=one, **given)
        for one in (True, False)
    )

    def cell(canvases, own):
        parts = canvases.reshape(len(own), 2, size // 2, 2, size // 2, -1)
        is_own = parts == own[:, None, :, None]
        return is_own.all((2, 4, 5)).reshape(-1, 4).argmax(axis=1)

    cells = each(cell, *(sides_of(one, "images") for one in (splits, alone)))
    weights, count = settings.backbone_weights, splits.train.num_classes
    network = frozen("mobilenet-v2", weights, settings.width)
    return among_others(splits, cells, network, size, min(8, count))


def among_others(
    splits: Any, cells: dict, network: Recipe, crop: int, count: int
) -> Task:
    """A task of splits whose subjects are in known cells of four."""
    starts = each(lambda cell: np.stack([cell // 2, cell % 2], 1) / 2, cells)
    return Task(
        sides_of(splits, "images"),
        sides_of(splits, "labels"),
        each(lambda start: np.concatenate([start, start + 0.5], 1), starts),
        *(network, crop, 0.5, count),
    )


def sides_of(splits: Any, name: str) -> dict[str, np.ndarray]:
    """The images or labels of the splits."""
    return {side: getattr(getattr(splits, side), name) for side in SIDES}


def frozen(name: str, weights: Any, width: float = 1.0) -> Recipe:
    """A network whose weights stay."""
    file = weights and str(weights)
    if name == "mobilenet-v2" and file is None:
        name = f"{name}@{width}"
    return Recipe.of(backbone=name, backbone_weights=file, frozen="all")


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
    weights = settings.backbone_weights
    network = frozen("mobilenet-v2", weights, settings.width)
    return Task(
        {side: found.images[is_in] for side, is_in in chosen.items()},
        {side: found.labels[is_in] for side, is_in in chosen.items()},
        *({}, network, settings.seen or size, None, 8),
    )


def scores(
    embeddings: np.ndarray, labels: np.ndarray, gallery: Any = None
) -> dict[str, Any]:
    """Scores of l2-normalized embeddings, for each query too."""
    rows, other = keras.utils.normalize(embeddings), {}
    if gallery is not None:  # Other embeddings of the same images.
        other = {
            "gallery_embeddings": keras.utils.normalize(gallery),
            "gallery_labels": labels,
            "query_groups": np.arange(len(rows)),
            "gallery_groups": np.arange(len(rows)),
        }
    return gsp.metrics.retrieval_scores(rows, labels, per_query=True, **other)


def head(maps: dict[str, np.ndarray], pooling: Any) -> keras.Model:
    """A head of 128 numbers on feature maps, started from PCA."""
    features = keras.Input(maps["train"].shape[1:])
    made = gsp.models.build_encoder(
        keras.Model(features, features),
        embedding_size=min(128, features.shape[-1]),
        pooling=pooling,
    )
    gsp.models.initialize_projection(made, maps["train"])
    return made


def embedded(made: keras.Model, maps: dict) -> dict[str, np.ndarray]:
    """Embeddings of validation and test."""
    return {side: made.predict(maps[side], verbose=0) for side in SIDES[1:]}


def each(function: Callable, *parts: dict) -> dict[str, Any]:
    """Applies a function to what each side has."""
    return {side: function(*(one[side] for one in parts)) for side in parts[0]}


def weights_of(made: keras.Model, maps: dict) -> dict[str, np.ndarray]:
    """Pooling weights (images, height, width) of a head."""
    found = each(lambda one: pooling_weights(made, one).astype("f4"), maps)
    return each(lambda one: one.mean(-1) if one.ndim == 4 else one, found)


def moved(own: np.ndarray, shares: Any) -> np.ndarray:
    """Boxes of the same sizes, at shares of the way across the image."""
    sides = own[:, 2:] - own[:, :2]
    start = (1.0 - sides) * shares(sides.shape)
    return np.concatenate([start, start + sides], axis=1)


def whole(images: np.ndarray) -> np.ndarray:
    """Boxes of whole images."""
    return np.tile(np.array([0.0, 0.0, 1.0, 1.0], "f4"), (len(images), 1))


def within(inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Boxes given as shares of other boxes, as shares of the image."""
    start, sides = outer[:, :2], outer[:, 2:] - outer[:, :2]
    return np.tile(start, 2) + inner * np.tile(sides, 2)


def as_large(weights: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Maps of weights, resized to the size of others."""
    return np.asarray(
        ops.image.resize(weights[..., None], other.shape[1:3])[..., 0]
    )


def above_half(weights: np.ndarray) -> np.ndarray:
    """Boxes (images, 4) around all cells above half the largest weight.

    The crop of Hu et al. (WS-DAN), 2019, at a threshold of 0.5.
    """
    is_large = weights > 0.5 * weights.max((1, 2), keepdims=True)
    ends = []
    for axis in (2, 1):
        held = is_large.any(axis)
        last = held.shape[1] - held[:, ::-1].argmax(1)
        ends.append(np.stack([held.argmax(1), last], 1) / held.shape[1])
    return np.stack(ends, 2).reshape(-1, 4).astype("float32")


class Looks:
    """The looks of one task and seed; rows by name."""

    def __init__(self, task: Task, settings: Settings, seed: int) -> None:
        self.task, self.settings, self.seed = task, settings, seed
        self.rows: dict[str, dict] = {}
        self.drawn: list = []
        gsp_layer = partial(gsp.layers.GeneralizedSumPooling, 64, 0.1)
        temperature = 20.0 if task.window is None else 80.0
        self.poolings = POOLINGS | {"GSP": partial(gsp_layer, temperature)}
        self.backbone = cache(partial(build_backbone, task.network))
        self.seen = task.images
        if settings.seen:
            boxes = each(whole, task.images)
            self.seen = each(self.cropped, boxes, task.images)
        self.maps = each(self.features, self.seen)

    def measure(self) -> dict[str, dict]:
        """Measures every row."""
        heads, weights, seed = {}, {}, self.seed
        self.raw()
        if not self.settings.heads:
            return self.rows
        for name, pooling in self.poolings.items():
            if name not in ("average", "GSP") and not self.settings.rivals:
                continue
            heads[name] = made = self.trained(self.maps, pooling)
            self.add(f"{name}, whole", embedded(made, self.maps))
            if name != "average":
                weights[name] = weights_of(made, self.maps)
        weights["activation norm"] = each(
            lambda maps: np.square(maps.astype("float32")).sum(-1), self.maps
        )
        boxes = {name: self.boxes(one) for name, one in weights.items()}
        for name, shares in (
            ("center", lambda shape: 0.5),
            ("random", lambda shape: np.random.default_rng(seed).random(shape)),
        ):
            boxes[name] = each(partial(moved, shares=shares), boxes["GSP"])
        first = embedded(heads["GSP"], self.maps)
        for name, own in boxes.items():
            second = heads["GSP"]
            if self.task.window is None:
                own = {side: own[side] for side in SIDES[1:]}
            near = self.near_maps(own)
            if self.task.window is not None:
                second = self.trained(near, lambda: None)
            again = embedded(second, near)
            self.add(f"box of {name}", first, again, own["test"])
            if name == "GSP":
                self.drawn = self.shown(first, again, own)
                close = each(pooled, {side: near[side] for side in SIDES[1:]})
                best = each(itemgetter(self.best_raw(close)), close)
                self.add("box of GSP, raw features", first, best)
                best = each(itemgetter(self.raw_name), close)
                self.add("raw best pooling, box of GSP", self.raw_rows, best)
                if self.settings.seen:
                    again = embedded(second, self.near_maps(own, self.seen))
                    self.add("box of GSP, out of what was seen", first, again)
                if self.settings.variants and self.task.window is None:
                    self.variants(second, first, again, own, near)
        if true := self.task.true_boxes:  # An upper bound.
            near = self.near_maps(true)
            made = self.trained(near, lambda: None)
            self.add("true cell", embedded(made, near))
        return self.rows

    def raw(self) -> None:
        """Rows without training: one look, and two by GSP behind PCA."""
        keras.utils.set_random_seed(self.seed)
        untrained = head(self.maps, self.poolings["GSP"]())
        maps = {side: self.maps[side] for side in SIDES[1:]}
        near = self.near_maps(self.boxes(weights_of(untrained, maps)))
        far, close = each(pooled, maps), each(pooled, near)
        self.raw_name = best = self.best_raw(far)
        self.raw_rows = each(itemgetter(best), far)
        for title, name in (("average", "average"), ("best pooling", best)):
            first, again = (each(itemgetter(name), x) for x in (far, close))
            self.add(f"raw {title}, whole", first)
            self.add(f"raw {title}, two looks", first, again)
        first, again = self.whitened(first, again)
        self.add("raw whitened, whole", first)
        self.add("raw whitened, two looks", first, again)

    def whitened(self, first: dict, second: dict) -> tuple[dict, dict]:
        """Both looks after learned whitening of the first, to 128 numbers."""
        own, best = self.task.labels, (-1.0, first, second)
        train = pooled(self.maps["train"])[self.raw_name]
        for shrinkage in SHRINKAGES:
            white = gsp.layers.Whitening(
                min(128, train.shape[1], len(train) - 1), shrinkage=shrinkage
            )
            white.adapt(train, own["train"])
            looks = [
                each(lambda x, white=white: ops.convert_to_numpy(white(x)), one)
                for one in (first, second)
            ]
            validated = scores(looks[0]["validation"], own["validation"])
            if validated["map_at_r"] > best[0]:
                best = validated["map_at_r"], *looks
        return best[1:]

    def variants(
        self,
        made: keras.Model,
        first: dict,
        second: dict,
        own: dict,
        near: dict,
    ) -> None:
        """Rows of other boxes and further looks of the trained GSP head."""

        def look(name, boxes):
            self.add(name, first, embedded(made, self.near_maps(boxes)))

        maps = {side: self.maps[side] for side in SIDES[1:]}
        weights = weights_of(made, maps)
        for share in (0.5, 0.65, 0.95):
            found = self.boxes(weights, share)
            look(f"box of GSP, {share:.0%} of the mass", found)
        look("box of GSP, where WS-DAN crops", each(above_half, weights))
        halves = each(self.halved, self.task.images)
        small = head(halves, self.poolings["GSP"]())
        small.set_weights(made.get_weights())
        found = weights_of(small, {side: halves[side] for side in SIDES[1:]})
        look("box of GSP, half the pixels", self.boxes(found))
        found = each(
            lambda one, other: one + as_large(other, one), weights, found
        )
        look("box of GSP, both sizes", self.boxes(found))
        found = each(partial(self.median_boxes, made), maps)
        look("box of GSP, median of prototypes", found)

        two = each(np.add, first, second)
        inner = each(within, self.boxes(weights_of(made, near)), own)
        third = embedded(made, self.near_maps(inner))
        self.add("three looks of GSP", two, third)
        self.add("two looks of GSP, queries alone", two, gallery=first)

        boxes = self.boxes(weights_of(made, self.maps))
        crops = self.near_maps({"train": boxes["train"]})["train"]
        both = np.concatenate([self.maps["train"], crops])
        made = self.trained(self.maps | {"train": both}, self.poolings["GSP"])
        near = self.near_maps(self.boxes(weights_of(made, maps)))
        looks = (embedded(made, some) for some in (maps, near))
        self.add("box of GSP, trained on crops too", *looks)

    def halved(self, images: np.ndarray) -> np.ndarray:
        """Feature maps of the images at half their height and width."""
        size = images.shape[1] // 2
        cells = images.reshape(len(images), size, 2, size, 2, -1)
        return self.features(np.rint(cells.mean((2, 4))).astype("u1"))

    def median_boxes(self, made: keras.Model, maps: np.ndarray) -> np.ndarray:
        """The median, side by side, of the boxes of each prototype's mass."""
        pooling: Any = pooling_layer(made)
        features = features_before(made, pooling)

        def median(some):
            plan = pooling.transport_plan(features(some, training=False))
            plan = np.moveaxis(ops.convert_to_numpy(plan), -1, 1) + 1e-12
            flat = plan.reshape(-1, *plan.shape[2:])
            found = self.boxes({"some": flat})["some"]
            return np.median(found.reshape(*plan.shape[:2], 4), axis=1)

        return np.concatenate([median(some) for some in blocks_of(maps, 256)])

    def shown(self, first: dict, second: dict, boxes: dict) -> list:
        """Random test images of different classes, and what either look finds.

        For each: the image and its box, and for each look neighbors with their
        boxes and whether they are right.
        """
        images, labels = self.task.images["test"], self.task.labels["test"]
        order = np.random.default_rng(self.seed).permutation(len(labels))
        places = np.unique(labels[order], return_index=True)[1]
        found = []
        for query in order[np.sort(places)[:SHOWN]]:
            near = {}
            for title, rows in (("first look", first), ("second look", second)):
                unit = keras.utils.normalize(rows["test"])
                ranks = np.argsort(-unit @ unit[query])
                near[title] = [
                    (images[k], boxes["test"][k], labels[k] == labels[query])
                    for k in ranks[ranks != query][:NEIGHBORS]
                ]
            found.append((images[query], boxes["test"][query], near))
        return found

    def best_raw(self, rows: dict[str, dict]) -> str:
        """The pooling of raw features that is best on validation classes."""
        labels, found = self.task.labels["validation"], rows["validation"]
        return max(found, key=lambda k: scores(found[k], labels)["map_at_r"])

    def features(self, images: np.ndarray) -> np.ndarray:
        """Feature maps, float16."""
        backbone = self.backbone(images.shape[1:])
        found = backbone.predict(images, batch_size=64, verbose=0)
        return found.astype("float16")

    def boxes(self, weights: dict, share: float = 0.8) -> dict[str, np.ndarray]:
        """Boxes (images, 4) by the rule of `TwoLooks`."""
        rule, images = Boxes(self.task.window, share), self.task.images["test"]
        found = each(lambda one: rule([images[:1, ..., :1], one]), weights)
        return each(ops.convert_to_numpy, found)

    def near_maps(self, boxes: dict, images: Any = None) -> dict:
        """Feature maps of the crops."""
        images = {side: (images or self.task.images)[side] for side in boxes}
        return each(self.features, each(self.cropped, boxes, images))

    def cropped(self, boxes: np.ndarray, images: np.ndarray) -> np.ndarray:
        """The boxes of images, uint8, of the size that the network sees."""
        crop = Crop((self.task.side, self.task.side))
        crops = [
            crop([images[some].astype("float32"), boxes[some]])
            for some in blocks_of(np.arange(len(images)), 256)
        ]
        return np.rint(np.concatenate(crops)).astype("u1")

    def trained(self, maps: dict, pooling: Callable) -> keras.Model:
        """The head with the best rate and weights on validation classes."""
        steps, labels = self.settings.steps, dict(self.task.labels)
        # Those of crops follow those of whole images.
        labels["train"] = np.resize(labels["train"], len(maps["train"]))
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
            sampler = gsp.data.ClassBalancedSampler(
                labels["train"],
                classes_per_batch=self.task.classes_per_batch,
                samples_per_class=4,
                seed=self.seed,
            )
            every = max(1, steps // EVALUATIONS)
            for step in range(steps + 1):
                if step % every == 0:
                    rows = made.predict(maps["validation"], verbose=0)
                    found = scores(rows, labels["validation"])["map_at_r"]
                    if found > best[0]:
                        best = found, made.get_weights()
                some = sampler[step]
                images, classes = maps["train"][some], labels["train"][some]
                learner.train_on_batch(images, classes)
        made.set_weights(best[1])
        return made

    def add(
        self,
        name: str,
        first: dict,
        second: Any = None,
        boxes: Any = None,
        gallery: dict | None = None,
    ) -> None:
        """Adds a row; validation chooses between the looks and their sum."""
        looks = {"first": first}
        if second is not None:
            looks["second"] = second
            if first["test"].shape == second["test"].shape:
                looks["sum"] = each(np.add, first, second)
        own = self.task.labels
        rest = () if gallery is None else (gallery,)
        found = {k: each(scores, one, own, *rest) for k, one in looks.items()}
        chosen = max(found, key=lambda k: found[k]["validation"]["map_at_r"])
        best = found[chosen]["test"]
        row = {k: 100 * one["test"]["map_at_r"] for k, one in found.items()}
        row |= {k: 100 * best[k] for k in ("map_at_r", "precision_at_1")}
        queries = 100 * best["per_query"]["map_at_r"]
        row |= {"chosen": chosen, "queries": queries}
        if boxes is not None and self.task.true_boxes:
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            true = self.task.true_boxes["test"]
            is_inside = (middle > true[:, :2]) & (middle < true[:, 2:])
            row["hit"] = 100 * float(is_inside.all(axis=1).mean())
        self.rows[name] = row


def measure(settings: Settings) -> dict:
    """Runs every seed; rows with their mean and paired gains."""
    kept = joblib.Memory(settings.keep, verbose=0).cache(measured_seed)
    # Neither changes what a seed measures.
    own = replace(settings, seeds=(), json=None, keep=None)
    found = [kept(own, seed) for seed in tqdm(settings.seeds, desc="seeds")]
    runs, classes, drawn = zip(*found, strict=True)
    rows = [_joined(name, runs, classes) for name in runs[0]]
    return {"rows": rows, "drawn": drawn[0]}


def measured_seed(
    settings: Settings, seed: int
) -> tuple[dict, np.ndarray, list]:
    """Rows of a seed, the labels of its test images, and what to draw."""
    if settings.collages is not None:
        task = collages(settings, seed)
    elif settings.data_dir is not None:
        task = photographs(settings, seed % max(settings.folds, 2))
    else:
        task = letters(settings)
    looks = Looks(task, settings, seed)
    rows = looks.measure()
    # Other pictures may have licenses.
    is_ours = settings.data_dir is None and settings.collages is None
    return rows, task.labels["test"], looks.drawn if is_ours else []


def _joined(name, runs, classes):
    own = [run[name] for run in runs]
    row: dict[str, Any] = {"name": name, "chosen": [o["chosen"] for o in own]}
    for key in KEYS:
        if key in own[0]:
            row[key] = float(np.mean([one[key] for one in own]))
    kind = name.partition(",")[0] if name.startswith("raw") else "GSP"
    base = f"{kind}, whole"
    if name != base:
        queries = [[run[k]["queries"] for run in runs] for k in (name, base)]
        found = gsp.metrics.paired_difference(queries[0], queries[1], classes)
        row["over"] = base
        row["gain"] = [found[key] for key in ("difference", "low", "high")]
    return row


def draw(path: Path, results: dict) -> None:
    """Queries with the box of GSP, and the neighbors of either look."""
    shown = results["drawn"]
    if not shown:
        return
    widths = [1.0, 0.25, *[1.0] * NEIGHBORS]
    size = 1.3 * sum(widths), 1.5 * 2 * len(shown)
    ratios = {"width_ratios": widths}
    shape = path, 2 * len(shown), len(widths)
    with picture(*shape, figsize=size, gridspec_kw=ratios) as axes:
        for axis in axes.flat:
            axis.axis("off")
        for number, (image, box, near) in enumerate(shown):
            rows = axes[2 * number : 2 * number + 2]
            framed(rows[0, 0], image, box, "query", BLACK, 3)
            for row, (look, found) in zip(rows, near.items(), strict=True):
                for axis, (one, own, is_right) in zip(
                    row[2:], found, strict=True
                ):
                    color = BLUE if is_right else VERMILION
                    style = "-" if is_right else "--"
                    title = look if axis is row[2] else ""
                    framed(axis, one, own, title, color, 3, style)


def framed(axis: Any, image: Any, box: Any, *style: Any) -> None:
    """An image with its box: top, left, bottom, right."""
    draw_image(axis, image, None, *style)
    outline(axis, (box[1], box[0], box[3] - box[1], box[2] - box[0]))


def tables(results: dict) -> list[Table]:
    """One table, MAP@R of each look and the gain of what validation chose."""
    headings = ["", "hit %", "first", "second", "both", "chosen", "P@1", "gain"]
    rows = []
    for row in results["rows"]:
        cells = [f"{row[key]:.1f}" if key in row else "" for key in KEYS]
        if "gain" in row:
            gain = "{:+.1f} [{:.1f}, {:.1f}]".format(*row["gain"])
        rows.append([row["name"], *cells, gain if "gain" in row else ""])
    return [Table(headings, rows, 1)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
