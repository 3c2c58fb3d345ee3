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
classes, their boxes from GSP behind PCA. Scores are MAP@R and P@1 in % on classes
that nothing has seen but the pretrained network. Gains are paired, over the
choice without a box, with 95 % intervals over classes and seeds or folds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.models.encoder import features_before
from keras_gsp.models.two_looks import Boxes, Crop
from training.datasets import glyphs
from training.recipes.glyph_network import (
    PIXELS,
    character_weights,
    glyph_network,
)
from training.research.report import (
    ExperimentSettings,
    Table,
    run_measurement,
)

SIDES = "train", "validation", "test"
EVALUATIONS = 4


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


def poolings(window: float | None) -> dict[str, Callable[[], Any]]:
    """Poolings of heads by name; all but average have weights."""
    layers = gsp.layers
    ratio, temperature = (0.1, 80.0) if window else (0.1, 20.0)
    return {
        "average": lambda: None,
        "GSP": lambda: layers.GeneralizedSumPooling(64, ratio, temperature),
        "DELF": layers.DELFPooling,
        "SimPool": layers.SimPooling,
        "attention": layers.AttentionPooling,
    }


@dataclass(frozen=True)
class Task:
    """Images and labels of three sides, and a frozen backbone."""

    images: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    cells: np.ndarray | None
    backbone: Callable[[tuple], keras.Model]
    crop_size: tuple[int, int]
    window: float | None
    batch: tuple[int, int]


def letters(settings: Settings) -> Task:
    """Letters among symbols, and a network that knows single characters."""
    sizes: Any = {}
    if settings.smoke:
        sizes = {"train_samples": 8, "test_samples": 3, "train_classes": 20}
        sizes |= {"validation_classes": 5, "test_classes": 5}
    splits = glyphs.load(**sizes)
    shape = splits.test.images.shape[1:]

    def backbone(size):
        inputs = keras.Input((*size, shape[-1]))
        network = glyph_network((*size, shape[-1]), "glyph-cnn")
        if not settings.smoke:
            network.load_weights(character_weights("glyph-cnn"))
        scaled = keras.layers.Rescaling(**PIXELS)(inputs)
        return keras.Model(inputs, network(scaled, training=False))

    sides = {side: getattr(splits, side) for side in SIDES}
    return Task(
        {side: one.images for side, one in sides.items()},
        {side: one.labels for side, one in sides.items()},
        glyphs.letter_cells("test", **sizes),
        backbone,
        (shape[0] // 2, shape[1] // 2),
        0.5,
        (16, 4),
    )


def photographs(settings: Settings, fold: int) -> Task:
    """A fold: a share of the classes tests, a sixth of the rest validates."""
    found = gsp.data.image_folder(str(settings.data_dir))
    size = settings.pixels
    cut = gsp.data.Preprocessing(size=size, resize=size)
    pixels = np.concatenate(
        [
            np.asarray(batch).astype("uint8")
            for batch in gsp.data.evaluation_batches(
                found.paths, preprocessing=cut
            )
        ]
    )
    order = np.random.default_rng(0).permutation(found.num_classes)
    tests = np.array_split(order, max(settings.folds, 2))[fold]
    others = np.random.default_rng(fold).permutation(np.setdiff1d(order, tests))
    count = max(2, len(others) // 6)
    classes = dict(
        zip(SIDES, (others[count:], others[:count], tests), strict=True)
    )
    chosen = {k: np.isin(found.labels, of) for k, of in classes.items()}

    def backbone(size):
        network = keras.applications.MobileNetV2(
            (*size, 3), include_top=False, weights=None
        )
        if settings.backbone_weights is not None:
            network.load_weights(settings.backbone_weights)
        inputs = keras.Input((*size, 3))
        scaled = keras.layers.Rescaling(1 / 127.5, -1.0)(inputs)
        return keras.Model(inputs, network(scaled, training=False))

    return Task(
        {side: pixels[is_in] for side, is_in in chosen.items()},
        {side: found.labels[is_in] for side, is_in in chosen.items()},
        None,
        backbone,
        (size, size),
        None,
        (8, 4),
    )


def scores(embeddings: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Scores of l2-normalized embeddings, for each query too."""
    return gsp.metrics.retrieval_scores(
        unit(embeddings), labels, per_query=True
    )


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-12)


def raw_poolings(maps: np.ndarray) -> dict[str, np.ndarray]:
    """Untrained embeddings by pooling."""
    maps = np.maximum(maps.astype("float32"), 0.0)
    found = {"average": maps.mean((1, 2)), "maximum": maps.max((1, 2))}
    for power in (3.0, 5.0):
        found[f"GeM {power:.0f}"] = (maps**power).mean((1, 2)) ** (1 / power)
    return found


def head(
    task: Task, maps: dict[str, np.ndarray], pooling: Any, rate: float
) -> keras.Model:
    """A head of 128 numbers on feature maps, started from PCA."""
    shape = maps["train"].shape[1:]
    features = keras.Sequential(
        [keras.Input(shape), keras.layers.Identity()], name="features"
    )
    size = min(128, shape[-1])
    made = gsp.models.build_encoder(
        features, embedding_size=size, pooling=pooling
    )
    gsp.models.start_projection(made, maps["train"])
    return made


def trained_head(
    task: Task, maps: dict, pooling: Callable, settings: Settings, seed: int
) -> keras.Model:
    """The head with the best rate and weights on validation classes."""
    best = -1.0, None
    made: Any = None
    for rate in settings.rates:
        keras.utils.set_random_seed(seed)
        made = head(task, maps, pooling(), rate)
        learner = gsp.models.MetricLearner(made)
        schedule = keras.optimizers.schedules.CosineDecay(rate, settings.steps)
        learner.compile(
            keras.optimizers.AdamW(schedule, weight_decay=1e-4),
            loss=gsp.losses.ContrastiveLoss(0.0, 0.3841),
        )
        indices = gsp.data.class_balanced_batches(
            np.unique(task.labels["train"], return_inverse=True)[1],
            classes_per_batch=task.batch[0],
            samples_per_class=task.batch[1],
            seed=seed,
        )
        every = max(1, settings.steps // EVALUATIONS)
        for step, chosen in enumerate(indices.take(settings.steps + 1)):
            if step % every == 0:
                embedded = made.predict(maps["validation"], verbose=0)
                found = scores(embedded, task.labels["validation"])["map_at_r"]
                if found > best[0]:
                    best = found, made.get_weights()
            chosen = np.asarray(chosen)
            learner.train_on_batch(
                maps["train"][chosen], task.labels["train"][chosen]
            )
    made.set_weights(best[1])
    return made


def weights_of(made: keras.Model, maps: np.ndarray) -> np.ndarray:
    """Pooling weights (images, height, width) of a head."""
    pooling = next(
        one for one in made.layers if hasattr(one, "pooling_weights")
    )
    before = features_before(made, pooling)
    found = []
    for start in range(0, len(maps), 256):
        features = before(maps[start : start + 256])
        found.append(ops.convert_to_numpy(pooling.pooling_weights(features)))
    weights = np.concatenate(found).astype("float32")
    return weights.mean(-1) if weights.ndim == 4 else weights


def boxes_of(task: Task, images: np.ndarray, weights: np.ndarray) -> Any:
    """Boxes (images, 4) by the rule of `TwoLooks`."""
    rule = Boxes(task.window, 0.8)
    return ops.convert_to_numpy(rule([images[:, :, :, :1], weights]))


def moved(boxes: np.ndarray, seed: int | None) -> np.ndarray:
    """Boxes of the same sizes at random, or in the center (`None`)."""
    sides = boxes[:, 2:] - boxes[:, :2]
    shares: Any = 0.5
    if seed is not None:
        shares = np.random.default_rng(seed).random(sides.shape)
    start = (1.0 - sides) * shares
    return np.concatenate([start, start + sides], axis=1).astype("float32")


def true_boxes(cells: np.ndarray) -> np.ndarray:
    """The cells of letters."""
    start = np.stack([cells // 2, cells % 2], axis=1) / 2
    return np.concatenate([start, start + 0.5], axis=1).astype("float32")


def crops_of(task: Task, images: np.ndarray, boxes: np.ndarray) -> Any:
    """What a second look sees, uint8."""
    crop, found = Crop(task.crop_size), []
    for start in range(0, len(images), 256):
        some = slice(start, start + 256)
        pixels = crop([images[some].astype("float32"), boxes[some]])
        found.append(np.rint(ops.convert_to_numpy(pixels)).astype("uint8"))
    return np.concatenate(found)


class Looks:
    """The looks of one task and seed; rows by name."""

    def __init__(self, task: Task, settings: Settings, seed: int) -> None:
        self.task, self.settings, self.seed = task, settings, seed
        shape = task.images["test"].shape[1:3]
        self.whole = task.backbone(shape)
        self.near = task.backbone(task.crop_size)
        self.maps = {
            side: self.features(self.whole, images)
            for side, images in task.images.items()
        }
        self.rows: dict[str, dict] = {}
        self.poolings = poolings(task.window)

    def features(self, backbone: keras.Model, images: np.ndarray) -> Any:
        """Feature maps, float16."""
        found = backbone.predict(images, batch_size=64, verbose=0)
        return found.astype("float16")

    def measure(self) -> dict[str, dict]:
        """Measures every row."""
        weights = {}
        heads = {}
        names = list(self.poolings) if self.settings.rivals else None
        for name in names or ("average", "GSP"):
            made = trained_head(
                self.task,
                self.maps,
                self.poolings[name],
                self.settings,
                self.seed,
            )
            heads[name] = made
            self.add(f"{name}, whole", self.embedded(made, self.maps))
            if name != "average":
                weights[name] = {
                    side: weights_of(made, self.maps[side]) for side in SIDES
                }
        norms = {
            side: np.square(maps.astype("float32")).sum(-1)
            for side, maps in self.maps.items()
        }
        boxes = {
            name: {
                side: boxes_of(self.task, self.task.images[side], one[side])
                for side in SIDES
            }
            for name, one in (weights | {"activation norm": norms}).items()
        }
        boxes["center"] = {k: moved(b, None) for k, b in boxes["GSP"].items()}
        boxes["random"] = {
            k: moved(b, self.seed) for k, b in boxes["GSP"].items()
        }
        self.raw(boxes)
        for name, own in boxes.items():
            self.second_look(name, own, heads)
        if self.task.cells is not None:
            self.oracle()
        return self.rows

    def embedded(self, made: keras.Model, maps: dict) -> dict:
        """Embeddings of validation and test."""
        return {
            side: unit(made.predict(maps[side], verbose=0))
            for side in SIDES[1:]
        }

    def near_maps(self, boxes: dict, sides: Any = SIDES) -> dict:
        """Feature maps of the crops."""
        return {
            side: self.features(
                self.near,
                crops_of(self.task, self.task.images[side], boxes[side]),
            )
            for side in sides
        }

    def raw(self, boxes: dict) -> None:
        """Rows without training: one look, and two by GSP behind PCA."""
        keras.utils.set_random_seed(self.seed)
        untrained = head(self.task, self.maps, self.poolings["GSP"](), 0.0)
        own = {
            side: boxes_of(
                self.task,
                self.task.images[side],
                weights_of(untrained, self.maps[side]),
            )
            for side in SIDES[1:]
        }
        near = self.near_maps(own, SIDES[1:])
        far = {side: raw_poolings(self.maps[side]) for side in SIDES[1:]}
        close = {side: raw_poolings(near[side]) for side in SIDES[1:]}
        labels = self.task.labels["validation"]
        best = max(
            far["validation"],
            key=lambda n: scores(far["validation"][n], labels)["map_at_r"],
        )
        for name in dict.fromkeys(("average", best)):
            title = f"raw {'average' if name == 'average' else 'best pooling'}"
            whole = {side: unit(far[side][name]) for side in SIDES[1:]}
            again = {side: unit(close[side][name]) for side in SIDES[1:]}
            self.add(f"{title}, whole", whole)
            self.add(f"{title}, two looks", whole, again)

    def second_look(self, name: str, boxes: dict, heads: dict) -> None:
        """The row of one detector."""
        near = self.near_maps(boxes)
        if self.task.window is None:  # The encoder of the first look.
            second = heads["GSP"]
        else:
            second = trained_head(
                self.task,
                near,
                self.poolings["average"],
                self.settings,
                self.seed,
            )
        first = self.embedded(heads["GSP"], self.maps)
        again = self.embedded(second, near)
        self.add(f"box of {name}", first, again, boxes["test"])

    def oracle(self) -> None:
        """Average pooling on the true cells of the test, an upper bound."""
        cells = {
            side: true_boxes(glyphs.letter_cells(side))
            for side in SIDES
            if not self.settings.smoke
        }
        if not cells:
            return
        near = self.near_maps(cells)
        made = trained_head(
            self.task,
            near,
            self.poolings["average"],
            self.settings,
            self.seed,
        )
        self.add("true cell", self.embedded(made, near))

    def add(
        self, name: str, first: dict, second: Any = None, boxes: Any = None
    ) -> None:
        """Adds a row; validation chooses between the looks and their sum."""
        looks = {"first": first}
        if second is not None:
            both = {side: first[side] for side in first}
            if first["test"].shape == second["test"].shape:
                both = {side: first[side] + second[side] for side in first}
            looks |= {"second": second, "sum": both}
        found = {
            look: {
                side: scores(one[side], self.task.labels[side]) for side in one
            }
            for look, one in looks.items()
        }
        chosen = max(
            found, key=lambda look: found[look]["validation"]["map_at_r"]
        )
        row = {
            look: 100 * one["test"]["map_at_r"] for look, one in found.items()
        }
        best = found[chosen]["test"]
        row |= {
            "chosen": chosen,
            "map_at_r": 100 * best["map_at_r"],
            "precision_at_1": 100 * best["precision_at_1"],
            "queries": 100 * best["per_query"]["map_at_r"],
        }
        if boxes is not None and self.task.cells is not None:
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            true = true_boxes(self.task.cells)
            is_inside = (middle > true[:, :2]) & (middle < true[:, 2:])
            row["hit"] = 100 * float(is_inside.all(axis=1).mean())
        self.rows[name] = row


def measure(settings: Settings) -> dict:
    """Runs every seed; rows with their mean and paired gains."""
    runs, classes = [], []
    for number, seed in enumerate(tqdm(settings.seeds, desc="seeds")):
        if settings.data_dir is None:
            task = letters(settings)
        else:
            task = photographs(settings, number % max(settings.folds, 2))
        runs.append(Looks(task, settings, seed).measure())
        classes.append(task.labels["test"])
    return {"rows": [_joined(name, runs, classes) for name in runs[0]]}


def _joined(name, runs, classes):
    own = [run[name] for run in runs if name in run]
    row: dict[str, Any] = {"name": name, "chosen": [o["chosen"] for o in own]}
    for key in ("hit", "first", "second", "sum", "map_at_r", "precision_at_1"):
        values = [one[key] for one in own if key in one]
        if values:
            row[key] = float(np.mean(values))
    base = "GSP, whole"
    if name.startswith("raw"):
        base = (
            "raw best pooling, whole"
            if "best" in name
            else ("raw average, whole")
        )
    if name != base and all(name in run and base in run for run in runs):
        found = gsp.metrics.paired_difference(
            [run[name]["queries"] for run in runs],
            [run[base]["queries"] for run in runs],
            classes,
        )
        row["over"] = base
        row["gain"] = [found[key] for key in ("difference", "low", "high")]
    return row


def tables(results: dict) -> list[Table]:
    """One table, MAP@R of each look and the gain of what validation chose."""
    headings = ["", "hit %", "first", "second", "both", "chosen", "P@1", "gain"]
    rows = []
    for row in results["rows"]:
        cells = [
            f"{row[key]:.1f}" if key in row else ""
            for key in ("hit", "first", "second", "sum")
        ]
        gain = ""
        if "gain" in row:
            difference, low, high = row["gain"]
            gain = f"{difference:+.1f} [{low:.1f}, {high:.1f}]"
        cells += [f"{row['map_at_r']:.1f}", f"{row['precision_at_1']:.1f}"]
        rows.append([row["name"], *cells, gain])
    return [Table(headings, rows, 1)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
