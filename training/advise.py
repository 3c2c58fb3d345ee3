"""Should I train at all? `python -m training.advise --data-dir my_images`.

Tries steps of growing cost on a folder of images: the backbone's raw features,
whitening, heads on the frozen backbone, LoRA, fine-tuning. A third of the
classes is held out; of the others, a quarter validates and chooses each step's
pooling, loss and learning rate. Steps are compared on the held-out classes,
image by image; when time is left, all of them on the next third, and the next.
A step that would not end in time is not begun, and fine-tuning only follows
where LoRA may gain `--worth` points. A stopped command goes on when it is given
again.

`--output` gets advice.md.
"""

import hashlib
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.recipes.settings import positive
from training.runs.command_line import run_command
from training.runs.run_directory import write_text

FOLDS, VALIDATION_FOLDS = 3, 4
# With fewer, a fold has two classes to validate with.
MIN_CLASSES = 12
# MAP@R in % below which no step knows the images.
TOO_LOW = 10.0
SHARP = {"transport_ratio": 0.1, "inverse_temperature": 80.0}
POOLINGS: list[dict[str, Any]] = [
    {"pooling": "gem"},
    {"pooling": "gsp"},
    {"pooling": "gsp-affine", **SHARP},
    {"pooling": "delf"},
]
LOSSES: list[dict[str, Any]] = [
    {"loss": "ms", "proxy_learning_rate_multiplier": 100.0},
    # A head learns fast: 100 times its rate would throw proxies about.
    {"loss": "proxy-anchor", "proxy_learning_rate_multiplier": 5.0},
]
# The first compares poolings and losses.
HEAD_RATES, LORA_RATES, TUNING_RATES = (
    [{"learning_rate": rate} for rate in rates]
    for rates in ((1e-4, 3e-4, 3e-5), (1e-3, 1e-4), (1e-4, 1e-5))
)
EVALUATIONS = 4
# Share of the time after which heads compare nothing more.
HEAD_SHARE = 0.25
# A training step costs about three passes through the backbone.
PASSES = 3
# How raw features are pooled, and the layer in Python.
RAW = {
    "average": "keras.layers.GlobalAveragePooling2D()",
    "GeM 3": "gsp.layers.GeneralizedMeanPooling(3.0)",
    "GeM 5": "gsp.layers.GeneralizedMeanPooling(5.0)",
    "maximum": "keras.layers.GlobalMaxPooling2D()",
}
# Settings of the winner's command, but for `steps`: its recipe has more.
CHOSEN = "backbone", "loss", "pooling"
OPTIONS = (
    *("backbone_weights", "crop_size", "frozen"),
    *("cache_features", "augmentation", "lora_rank", "whitening"),
    *("embedding_size", "transport_ratio", "inverse_temperature"),
    *("learning_rate", "proxy_learning_rate_multiplier"),
)


@dataclass(frozen=True)
class AdviseCommand:
    """Finds out what training would gain on a folder of images."""

    data_dir: str
    """Folder or archive of images with one folder per class, or list file."""
    dataset: Literal["folder", "csv"] = "folder"
    """Layout of the data set, as for training.train."""
    minutes: Annotated[float, positive] = 10.0
    """Minutes to spend, the raw features' included; a step that would take
    longer is not begun."""
    worth: Annotated[float, positive] = 1.0
    """Points of MAP@R, in %, that a more expensive step must gain."""
    backbones: tuple[str, ...] = ("mobilenet-v2",)
    """Pretrained networks to compare: NAME, NAME@WIDTH, NAME=FILE or
    NAME@WIDTH=FILE with a file of weights; without one, those of ImageNet."""
    crop_size: Annotated[int, positive] = 160
    """Side of the images, in pixels."""
    head_steps: Annotated[int, positive] = 400
    """Training steps of a head."""
    tuning_steps: Annotated[int, positive] = 200
    """Training steps of LoRA and of fine-tuning."""
    output: Path = Path("runs/advice")
    """Folder of the runs and of the result."""

    def features(self) -> list[Recipe]:
        """Recipes of the raw features of each backbone."""
        if not self.backbones:
            raise ValueError("`backbones` must name one. Received: none.")
        return [self._features(text) for text in self.backbones]

    def _features(self, text):
        name, _, file = text.partition("=")
        base = named("folder-features", backbone=name)
        return base.with_(
            dataset=self.dataset,
            data_dir=self.data_dir,
            crop_size=self.crop_size,
            steps=0,
            backbone_weights=file or base.backbone_weights,
        )


@dataclass(eq=False)
class Row:
    """One way from images to embeddings, scored on the folds of all rows."""

    name: str
    recipe: Recipe
    # How raw features are pooled, a key of `RAW`; empty for other rows.
    pooling: str = ""
    # MAP@R of each query, in %, and its class, for each fold.
    scores: list[np.ndarray] = field(default_factory=list)
    classes: list[np.ndarray] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def chosen(self) -> str:
        """What validation classes chose, or the step's own setting."""
        recipe = self.recipe
        if self.pooling:
            return f"{recipe.backbone}, {self.pooling}"
        if not recipe.steps:
            return f"{recipe.whitening}, {recipe.embedding_size} numbers"
        return f"{recipe.loss}, {recipe.pooling}, rate {recipe.learning_rate:g}"

    @property
    def map_at_r(self) -> float:
        """Mean over queries with another image of their class, in %."""
        return float(np.nanmean(np.concatenate(self.scores)))

    def gain(self, base: "Row") -> dict[str, float]:
        """Paired difference to another row in points, with 95 % interval."""
        from keras_gsp.metrics import paired_difference

        given = self.scores, base.scores, self.classes
        return dict(paired_difference(*map(np.concatenate, given)))


class Comparison:
    """Tries one step after another: `rows`, in order, and `skipped`."""

    def __init__(self, command: AdviseCommand) -> None:
        self.command = command
        self.start = time.monotonic()
        self.rows: list[Row] = []
        self.skipped: dict[str, str] = {}
        self._images: dict[tuple, Any] = {}
        # Of each run, by its folder.
        self._seconds: dict[Path, float] = {}
        self._slowest_head = 0.0

    @property
    def best(self) -> Row:
        """The row to take: each gains `worth` points over all before it."""
        best = self.rows[0]
        for row in self.rows[1:]:
            if row.gain(best)["difference"] >= self.command.worth:
                best = row
        return best

    def run(self) -> None:
        """Fills `rows`, on one fold, then on more while time is left."""
        command = self.command
        raw = self._try_raw(command.features())
        channels = self._splits(raw, 0).train.images.shape[-1]
        size = min(raw.embedding_size, channels)
        self._try(
            "whitening", raw.with_(embedding_size=size, whitening="learned")
        )
        head = _trained(raw, command.head_steps)
        stages = [POOLINGS, LOSSES, HEAD_RATES]
        row = self._try("head", head.with_(**HEAD_RATES[0]), stages, HEAD_SHARE)
        tuned = _trained(row.recipe if row else head, command.tuning_steps)
        tuned = tuned.with_(cache_features=False, frozen="batch-norm")
        tuned = tuned.with_(augmentation="mlrc-area", lora_rank=8)
        # A head's best loss may be a poor one for all weights.
        stages = [[{}, LOSSES[0]], LORA_RATES]
        row = self._try("LoRA", tuned.with_(**LORA_RATES[0]), stages)
        tuned = (row.recipe if row else tuned).with_(lora_rank=None)
        best = self.best
        if row in (None, best) or row.gain(best)["high"] >= command.worth:
            self._try("fine-tuning", tuned, [TUNING_RATES])
        else:
            self.skipped["fine-tuning"] = "LoRA gains too little"
        self._add_folds()

    def _try_raw(self, recipes):
        """Adds the backbone and pooling that are best on validation."""
        start, found = time.monotonic(), {}
        for recipe in recipes:
            images = self._splits(recipe, 0).validation
            for name in RAW:
                found[recipe, name] = np.nanmean(_raw_scores(images, name))
        recipe, name = max(found, key=found.__getitem__)
        row = Row("raw features", recipe, name)
        self._score(row, 0)
        row.seconds = time.monotonic() - start
        self.rows.append(row)
        return recipe

    def _try(self, name, recipe, stages=(), share=1.0):
        """Adds a row; None if it is skipped, as `skipped` says why.

        Each stage changes the best recipe so far; validation classes choose.
        """
        deadline = self.start + 60 * share * self.command.minutes
        scores: dict[Recipe, float] = {}
        best: Any = None
        before = sum(self._seconds.values())
        for stage in stages or [[{}]]:
            base = best or recipe
            for own in stage:
                one = base.with_(**own)
                left = (deadline if best else self._end) - time.monotonic()
                if one in scores or left < 0 or left < self._cost(one):
                    continue
                scores[one] = self._validation_score(one) if stages else 0.0
                best = max(scores, key=scores.__getitem__)
        if best is None:
            self.skipped[name] = "not tried, no time"
        elif np.isinf(scores[best]):
            self.skipped[name] = "diverged at every rate"
        if name in self.skipped:
            print(f"{name}: {self.skipped[name]}", flush=True)
            return None
        row = Row(name, best)
        self._score(row, 0)
        row.seconds = sum(self._seconds.values()) - before
        self.rows.append(row)
        print(f"{name}: MAP@R {row.map_at_r:.1f} %", flush=True)
        return row

    def _add_folds(self):
        """Scores every row on further folds, or none of them."""
        trained = [row.recipe for row in self.rows if not row.pooling]
        seconds = sum(self._seconds[self._trial(r, 0).path] for r in trained)
        for fold in range(1, FOLDS):
            if time.monotonic() + seconds > self._end:
                return
            for row in self.rows:
                self._score(row, fold)

    @property
    def _end(self):
        return self.start + 60 * self.command.minutes

    def _score(self, row, fold):
        """Adds the scores of a fold to a row."""
        if row.pooling:
            images = self._splits(row.recipe, fold).test
            scores, labels = _raw_scores(images, row.pooling), images.labels
        else:
            found = self._run(row.recipe, fold).queries()
            scores, labels = found["map_at_r"], found["labels"]
        row.scores.append(100 * scores)
        # A class is in one fold alone.
        row.classes.append(labels + fold * 10**6)

    def _validation_score(self, recipe):
        try:
            return self._run(recipe, 0).validation_score()
        except ValueError as error:
            # Embeddings, or their scores, of a training that diverged.
            if "finite" not in str(error):
                raise
            return -np.inf

    def _trial(self, recipe, fold):
        """A run, in a folder that is named after its recipe."""
        from training.runs.trial import Trial

        content = json.dumps([recipe.settings, fold], default=str)
        name = hashlib.sha256(content.encode()).hexdigest()[:12]
        count = self._splits(recipe, fold).train.num_classes
        classes = min(recipe.classes_per_batch, count)
        recipe = recipe.with_(classes_per_batch=classes)
        return Trial(self.command.output / "runs" / name, recipe)

    def _run(self, recipe, fold):
        """Trains one run, or finds it finished."""
        trial = self._trial(recipe, fold)
        if not trial.is_finished:
            trial.train(self._splits(recipe, fold))
        seconds = float(trial.queries()["seconds"])
        self._seconds[trial.path] = seconds
        if recipe.cache_features:
            self._slowest_head = max(self._slowest_head, seconds)
        return trial

    def _splits(self, recipe, fold):
        """The classes that train, validate and are held out."""
        from training.datasets.image_set import RetrievalSplits
        from training.recipes.data import read_recipe

        network = recipe.backbone, recipe.backbone_weights
        # What images, or their features, depend on.
        key = recipe.images, recipe.cache_features, network
        if key not in self._images:
            self._images[key] = read_recipe(recipe).every_image()
        images = self._images[key]
        order = np.random.default_rng(0).permutation(images.num_classes)
        folds = np.array_split(order, FOLDS)
        rest = np.concatenate(folds[:fold] + folds[fold + 1 :])
        return RetrievalSplits(
            "images",
            train=images.of_classes(rest),
            test=images.of_classes(folds[fold]),
        ).with_validation(VALIDATION_FOLDS, 0)

    def _cost(self, recipe):
        """Seconds that a run will take."""
        if self._trial(recipe, 0).is_finished:
            return 0.0
        if recipe.cache_features:
            return self._slowest_head
        splits = self._splits(recipe, 0)
        passes = PASSES * recipe.batch_size * recipe.steps
        passes += len(splits.validation) * recipe.evaluations
        return (passes + len(splits.test)) * self._seconds_per_image

    @cached_property
    def _seconds_per_image(self):
        """Of an image through the backbone, in a batch of 32."""
        from keras_gsp._processes import predictor
        from training.recipes.backbone import build_backbone

        recipe = self.rows[0].recipe.with_(cache_features=False)
        shape = recipe.crop_size, recipe.crop_size, 3
        predict = predictor(build_backbone(recipe, shape))
        images = np.zeros((32, *shape), "uint8")
        predict(images)
        start = time.perf_counter()
        predict(images)
        return (time.perf_counter() - start) / len(images)


def _trained(recipe, steps):
    """With this number of steps, or a few less that evaluations divide."""
    interval = max(1, steps // EVALUATIONS)
    return recipe.with_(
        steps=steps - steps % interval, steps_per_evaluation=interval
    )


def _raw_scores(images, pooling):
    """MAP@R of each image among the others, of pooled feature maps."""
    from keras_gsp.metrics import retrieval_scores
    from training.runs.raw_baseline import pooled

    starts = range(0, len(images), 256)
    rows = [pooled(images.images[i : i + 256])[pooling] for i in starts]
    every = np.concatenate(rows)
    found = retrieval_scores(every, images.labels, per_query=True)
    return np.asarray(found["per_query"]["map_at_r"])


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("advise", __doc__, AdviseCommand, _advise, arguments)


def _advise(command):
    from training.datasets.reading import READERS
    from training.recipes.data import check_sources

    for recipe in command.features():
        check_sources(recipe)
    splits = READERS[command.dataset](command.data_dir)
    count = splits.train.num_classes + splits.test.num_classes
    if count < MIN_CLASSES:
        raise ValueError(
            f"`data_dir` must have at least {MIN_CLASSES} classes, so that "
            "each third holds some out, and some of the others validate. "
            f"Received: {count} classes in {command.data_dir}."
        )
    comparison = Comparison(command)
    comparison.run()
    page = page_of(comparison)
    write_text(command.output / "advice.md", page)
    print(f"\n{page}\n{command.output}/advice.md")


def verdict(rows: Sequence[Row], best: Row, skipped: Mapping[str, str]) -> str:
    """Says what to do, of the scored rows (raw features first) the `best`."""
    raw = rows[0]
    highest = max(row.map_at_r for row in rows)
    if highest < TOO_LOW:
        text = (
            f"Undecided: MAP@R is {highest:.1f} % at most, so these networks "
            "have not seen such images. Try another backbone, or fine-tune it "
            "for thousands of steps with --tuning-steps."
        )
    elif best is raw:
        text = f"Do not train: search with the raw features ({raw.pooling})."
    else:
        what = "Whiten" if best.name == "whitening" else f"Train: {best.name}"
        text = (
            f"{what}, which gains {interval_text(best.gain(raw))} points of "
            "MAP@R over the raw features."
        )
        before = rows[: list(rows).index(best)]
        cheaper = max(before, key=lambda row: row.map_at_r)
        gain = best.gain(cheaper)
        if gain["low"] <= 0:
            text += (
                " These images cannot tell it for sure from the cheaper "
                f"{cheaper.name} ({interval_text(gain)})."
            )
    untried = [name for name, why in skipped.items() if "no time" in why]
    if untried:
        text += f" No time was left to try {' and '.join(untried)}."
    return text


def training_command(command: AdviseCommand, recipe: Recipe) -> list[str]:
    """Returns the command that trains a recipe to its end."""
    name: str = command.dataset
    if name == "folder" and recipe.cache_features:
        name = "folder-features"
    base = named(name, **{one: getattr(recipe, one) for one in CHOSEN})
    words = f"python -m training.train {name} --data-dir".split()
    words.append(command.data_dir)
    for option in (*CHOSEN, *OPTIONS, *(() if recipe.steps else ("steps",))):
        value, word = getattr(recipe, option), option.replace("_", "-")
        if option not in CHOSEN and value == getattr(base, option):
            continue
        if isinstance(value, bool):
            words.append(f"--{word}" if value else f"--no-{word}")
        else:
            words += [f"--{word}", str(value)]
    return words


def page_of(comparison: Comparison) -> str:
    """Returns the advice as Markdown."""
    command, rows, best = comparison.command, comparison.rows, comparison.best
    raw, skipped = rows[0], comparison.skipped
    lines = [
        *("# Should I train?", "", verdict(rows, best, skipped), ""),
        "| step | chosen | MAP@R % | gain over raw | minutes |",
        "| --- | --- | ---: | --- | ---: |",
    ]
    for row in rows:
        gain = "" if row is raw else interval_text(row.gain(raw))
        name = f"**{row.name}**" if row is best else row.name
        cells = [name, row.chosen, f"{row.map_at_r:.1f}", gain]
        cells.append(f"{row.seconds / 60:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| {name} | {why} | | | |" for name, why in skipped.items()]
    thirds = {1: "a third", 2: "two thirds", 3: "all"}[len(raw.scores)]
    num_classes = sum(len({*labels}) for labels in raw.classes)
    minutes = (time.monotonic() - comparison.start) / 60
    next_step = shlex.join(training_command(command, best.recipe))
    if best.pooling:
        layer = f"embedding_size=None, pooling={RAW[best.pooling]}"
        next_step = f"encoder = gsp.models.build_encoder(backbone, {layer})"
    lines += [
        "",
        "Bold is what to take. All rows are scored on the same "
        f"{sum(map(len, raw.classes)):,} images of {num_classes} classes, "
        f"{thirds} of the folder's, which no row was trained on. Gains are "
        "points of MAP@R, image by image, with 95 % intervals over classes. "
        f"It took {minutes:.1f} of {command.minutes:g} minutes.",
        "\nNext:\n",
        f"    {next_step}\n",
    ]
    return "\n".join(lines)


def interval_text(gain: Mapping[str, float]) -> str:
    """Formats a gain in points, `+1.3 [+0.5, +2.0]`."""
    return "{difference:+.1f} [{low:+.1f}, {high:+.1f}]".format(**gain)


if __name__ == "__main__":
    main()
