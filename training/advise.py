"""Should I train at all? `python -m training.advise --data-dir my_images`.

Tries what costs more and more on a folder of images: the backbone's raw
features, whitening, neighbor augmentation and second looks, which train
nothing; then heads on the frozen backbone, LoRA, fine-tuning. A third of the
classes is held out and scores every row; a quarter of the others validates and
chooses each row's settings. It stops when the minutes are over, and says what
it had no time for. A stopped command goes on when it is given again.

`--output` gets advice.md, and encoder.keras of the best row without training.
"""

import hashlib
import json
import shlex
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.recipes.settings import positive
from training.runs.command_line import run_command
from training.runs.run_directory import write_text
from training.runs.scoring import part_scores
from training.runs.verdict import interval

# With fewer, there are two classes to validate with.
MIN_CLASSES = 12
# MAP@R below which no row knows the images.
TOO_LOW = 0.1
# Share of the time in which all images are embedded, or fewer of each class.
EMBED_SHARE = 1 / 3
# A training step costs about three passes through the backbone.
PASSES = 3
HEADS: list[dict[str, Any]] = [
    {},
    {"learning_rate": 3e-4},
    {"pooling": "gsp"},
    # A head learns fast: 100 times its rate would throw proxies about.
    {"loss": "proxy-anchor", "proxy_learning_rate_multiplier": 5.0},
]
TRAINED = "head", "LoRA", "fine-tuning"
# Settings of a trained row's command.
OPTIONS = (
    *("backbone_weights", "crop_size", "frozen", "cache_features", "lora_rank"),
    *("augmentation", "learning_rate", "proxy_learning_rate_multiplier"),
)


@dataclass(frozen=True)
class AdviseCommand:
    """Finds out what training would gain on a folder of images."""

    data_dir: str
    """Folder or archive of images with one folder per class, or list file."""
    dataset: Literal["folder", "csv"] = "folder"
    """Layout of the data set, as for training.train."""
    minutes: Annotated[float, positive] = 10.0
    """Minutes to spend; a row that would take longer is not begun."""
    worth: Annotated[float, positive] = 1.0
    """Points of MAP@R, in %, that a more expensive row must gain."""
    backbone: str = "mobilenet-v2"
    """As for training.train."""
    backbone_weights: str | None = None
    """Weights file, as for training.train; None: ImageNet's."""
    crop_size: Annotated[int, positive] = 224
    """Side of the images, in pixels."""
    steps: Annotated[int, positive] = 400
    """Training steps of a head; LoRA and fine-tuning take half as many."""
    output: Path = Path("runs/advice")
    """Folder of the runs and of the result."""

    @property
    def recipe(self) -> Recipe:
        """The recipe of heads on the frozen backbone."""
        base = named("folder-features", backbone=self.backbone)
        every = max(1, self.steps // 4)
        return base.with_(
            dataset=self.dataset,
            data_dir=self.data_dir,
            crop_size=self.crop_size,
            steps=self.steps - self.steps % every,
            steps_per_evaluation=every,
            backbone_weights=self.backbone_weights or base.backbone_weights,
        )


@dataclass(eq=False)
class Row:
    """One way from images to embeddings, scored on the held-out classes."""

    name: str
    chosen: str
    queries: np.ndarray
    """MAP@R of each held-out image among the other parts of its class."""
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    """Embeddings of each side; none of trained rows."""
    encoder: Callable[[], Any] | None = None
    """Builds the encoder of a row without training."""
    recipe: Recipe | None = None
    """Of a trained row."""
    augmentation: Any = None
    seconds: float = 0.0

    @property
    def map_at_r(self) -> float:
        """Mean over images with another one of their class."""
        return float(np.nanmean(self.queries))

    def gain(self, base: "Row", classes: Any) -> dict[str, Any]:
        """Paired difference to another row."""
        from keras_gsp.metrics import paired_difference

        return paired_difference(self.queries, base.queries, classes)


class Advice:
    """Tries one row after another: `rows`, and `skipped` with the reason."""

    def __init__(self, command: AdviseCommand, start: float) -> None:
        self.command, self.recipe = command, command.recipe
        self.end = start + 60 * command.minutes
        self.rows: list[Row] = []
        self.skipped: dict[str, str] = {}
        self.notes: list[str] = []

    @property
    def best(self) -> Row:
        """The row to take: each gains `worth` points over all before it."""
        best = self.rows[0]
        for row in self.rows[1:]:
            if 100 * (row.map_at_r - best.map_at_r) >= self.command.worth:
                best = row
        return best

    def run(self) -> None:
        """Reads, embeds each image once, and tries rows in order of cost."""
        self.images = self._read()
        self._embed()
        for name, attempt in (
            ("raw features", self._raw),
            ("CLS + GeM", self._class_token),
            ("whitening", self._whitened),
            ("neighbor augmentation", self._augmented),
            ("second look, sum", lambda: self._looks("sum", None)),
            ("second look, window", lambda: self._looks("second", 0.5)),
            ("head", self._head),
            ("LoRA", lambda: self._tuned("LoRA", 8)),
            ("fine-tuning", lambda: self._tuned("fine-tuning", None)),
        ):
            begin = time.monotonic()
            if begin > self.end and self.rows:
                self.skipped[name] = "no time"
                continue
            print(f"{name} ...", flush=True)
            row = attempt()
            if row is None:
                print(f"{name}: {self.skipped[name]}", flush=True)
                continue
            row.seconds = time.monotonic() - begin
            self.rows.append(row)
            print(f"{name}: MAP@R {100 * row.map_at_r:.1f} %", flush=True)

    def _read(self):
        """The images in three sides: a third is held out."""
        from training.datasets.image_set import RetrievalSplits
        from training.recipes.data import check_sources, read_recipe

        recipe = self.recipe.with_(cache_features=False)
        print(f"Reading {self.command.data_dir} ...", flush=True)
        weightless = recipe.with_(backbone_weights=None, frozen="none")
        images = read_recipe(weightless).every_image()
        if images.num_classes < MIN_CLASSES:
            raise ValueError(
                f"`data_dir` must have at least {MIN_CLASSES} classes, so that "
                "a third is held out and some of the others validate. "
                f"Received: {images.num_classes} in {self.command.data_dir}."
            )
        print(f"{len(images):,} images of {images.num_classes} classes")
        check_sources(recipe)
        self.seconds_per_image = self._measured(recipe)
        budget = EMBED_SHARE * 60 * self.command.minutes
        most = int(budget / self.seconds_per_image)
        if len(images) > most:
            each = max(4, most // images.num_classes)
            images = images.of_each_class(each)
            self.notes.append(
                f"At most {each} images of each class are used: all would not "
                f"be embedded in {self.command.minutes:g} minutes."
            )
        order = np.random.default_rng(0).permutation(images.num_classes)
        held_out, rest = np.split(order, [images.num_classes // 3])
        splits = RetrievalSplits(
            "images",
            train=images.of_classes(rest),
            test=images.of_classes(held_out),
        )
        return splits.with_validation(4, 0)

    def _measured(self, recipe):
        """Seconds that an image takes through the backbone."""
        predict = self._backbone(recipe).predict_on_batch
        side = self.command.crop_size
        blank = np.zeros((16, side, side, 3), "uint8")
        predict(blank)
        start = time.perf_counter()
        predict(blank)
        return (time.perf_counter() - start) / len(blank)

    def _backbone(self, recipe=None):
        from training.recipes.backbone import build_backbone

        recipe = recipe or self.recipe.with_(cache_features=False)
        side = self.command.crop_size
        return build_backbone(recipe, (side, side, 3))

    def _embed(self):
        """Embeds each image once; pools its map, and keeps its class token."""
        from training.recipes.features import class_tokens, with_features
        from training.runs.raw_baseline import POOLINGS, pooled

        self.features = with_features(self.recipe, self.images)
        self.classes = self.features.test.labels
        self.pooled: dict[str, dict] = {name: {} for name in POOLINGS}
        for side, part in self.features.sides().items():
            starts = range(0, len(part), 256)
            blocks = [pooled(part.images[i : i + 256]) for i in starts]
            for name, rows in self.pooled.items():
                rows[side] = np.concatenate([block[name] for block in blocks])
        self.tokens: dict[str, Any] = {}
        if self.recipe.hub_preset:
            for side, part in self.images.sides().items():
                self.tokens[side] = class_tokens(self.recipe, part)

    def _labels(self, side):
        return self.images.sides()[side].labels

    def _row(self, name, chosen, rows, encoder, augmentation=None):
        queries = part_scores(rows["test"], self.classes, augmentation)
        return Row(name, chosen, queries, rows, encoder, None, augmentation)

    def _validated(self, rows):
        """Mean MAP@R of the validation classes."""
        labels = self._labels("validation")
        return float(np.nanmean(part_scores(rows["validation"], labels)))

    def _free(self):
        """The best row so far by validation classes."""
        return max(self.rows, key=lambda row: self._validated(row.rows))

    def _raw(self):
        self.pooling = max(
            self.pooled, key=lambda name: self._validated(self.pooled[name])
        )
        rows = self.pooled[self.pooling]
        return self._row("raw features", self.pooling, rows, self._encoder)

    def _encoder(self, pooling=None):
        """The backbone's own features, pooled as validation classes chose."""
        import keras

        import keras_gsp as gsp
        from training.recipes.batches import preprocessing_of

        if pooling is None:
            gem = gsp.layers.GeneralizedMeanPooling
            pooling = {
                "average": keras.layers.GlobalAveragePooling2D(),
                "maximum": keras.layers.GlobalMaxPooling2D(),
            }.get(self.pooling) or gem(float(self.pooling[-1]))
        recipe = self.recipe.with_(cache_features=False)
        return gsp.models.build_encoder(
            self._backbone(recipe),
            embedding_size=None,
            pooling=pooling,
            preprocessing=preprocessing_of(recipe),
        )

    def _class_token(self):
        if self.tokens.get("test") is None:
            self.skipped["CLS + GeM"] = "the backbone has no class token"
            return None
        gem = self.pooled["GeM 3"]
        rows = {
            side: np.concatenate([unit(tokens), gem[side]], axis=1) / 2**0.5
            for side, tokens in self.tokens.items()
        }
        return self._row("CLS + GeM", "GeM 3", rows, self._token_encoder)

    def _token_encoder(self):
        import keras

        import keras_gsp as gsp
        from training.recipes.features import with_class_token

        both: Any = with_class_token(self._backbone())
        features, token = both.output
        unit_length = keras.layers.UnitNormalization
        pooled = gsp.layers.GeneralizedMeanPooling(3.0)(features)
        joined = keras.layers.Concatenate()(
            [unit_length()(token), unit_length()(pooled)]
        )
        return keras.Model(both.input, unit_length()(joined), name="encoder")

    def _whitened(self):
        import keras

        import keras_gsp as gsp
        from keras_gsp._encoding import input_of
        from training.runs.raw_baseline import SHRINKAGES

        base, tried = self._free(), {}
        train = base.rows["train"]
        size = min(self.recipe.embedding_size, train.shape[1], len(train) - 1)
        for shrinkage in SHRINKAGES:
            layer = gsp.layers.Whitening(size, shrinkage=shrinkage)
            layer.adapt(train, self._labels("train"))
            rows = {
                side: keras.ops.convert_to_numpy(layer(part))
                for side, part in base.rows.items()
            }
            tried[self._validated(rows)] = layer, rows
        layer, rows = tried[max(tried)]

        def build():
            raw = base.encoder()
            return keras.Model(input_of(raw), layer(raw.output), name="encoder")

        chosen = f"{size} numbers, shrinkage {layer.shrinkage:g}"
        return self._row("whitening", chosen, rows, build)

    def _augmented(self):
        from keras_gsp.retrieval import NeighborAugmentation

        base = self._free()
        chosen = NeighborAugmentation.chosen(
            base.rows["validation"], self._labels("validation")
        )
        if not chosen.num_neighbors:
            self.skipped["neighbor augmentation"] = "validation shows no gain"
            return None
        text = f"{chosen.num_neighbors} neighbors of {base.name}"
        return self._row(
            *("neighbor augmentation", text, base.rows, base.encoder, chosen)
        )

    def _looks(self, combine, window):
        import keras_gsp as gsp
        from keras_gsp._labeled_batches import encoded
        from training.recipes.batches import evaluation_batches

        name = "second look, " + ("window" if window else "sum")
        if not self._has_time(name, 2 * len(self.classes)):
            return None
        pooling = gsp.layers.GeneralizedSumPooling(64, 0.3, 20.0)
        first = self._encoder(pooling)
        pooling.adapt(self.features.train.images[:512], seed=0)
        looks = gsp.models.TwoLooks(
            first, self._encoder(), window=window, combine=combine
        )
        recipe = self.recipe.with_(cache_features=False)
        batches = evaluation_batches(recipe, self.images.test)
        rows = {"test": encoded(looks, batches)[0]}
        return self._row(name, f"GSP, {self.pooling}", rows, lambda: looks)

    def _has_time(self, name, num_passes):
        seconds = num_passes * self.seconds_per_image
        if time.monotonic() + seconds <= self.end:
            return True
        self.skipped[name] = f"no time: {seconds / 60:.0f} minutes"
        return False

    def _head(self):
        return self._trained("head", HEADS, self.recipe, self.features)

    def _tuned(self, name, rank):
        head = next((row for row in self.rows if row.name == "head"), None)
        recipe = (head and head.recipe) or self.recipe
        every = max(1, recipe.steps // 8)
        recipe = recipe.with_(
            cache_features=False,
            frozen="batch-norm",
            augmentation="mlrc-area",
            lora_rank=rank,
            steps=every * 4,
            steps_per_evaluation=every,
            learning_rate=1e-3 if rank else 1e-4,
        )
        images = self.images
        passes = PASSES * recipe.batch_size * recipe.steps
        passes += 5 * len(images.validation) + len(images.test)
        if not self._has_time(name, passes):
            return None
        return self._trained(name, [{}], recipe, images)

    def _trained(self, name, variants, recipe, splits):
        """Trains what there is time for; validation classes choose."""
        from training.runs.scoring import load_test_embeddings

        scores: dict[Recipe, tuple] = {}
        count = min(recipe.classes_per_batch, splits.train.num_classes)
        for settings in variants:
            if scores and time.monotonic() > self.end:
                break
            tried = recipe.with_(**{"classes_per_batch": count} | settings)
            scores[tried] = self._run(tried, splits)
        best = max(scores, key=lambda tried: scores[tried][0])
        value, path = scores[best]
        if not np.isfinite(value):
            self.skipped[name] = "diverged"
            return None
        queries = part_scores(load_test_embeddings(path)["test"], self.classes)
        chosen = f"{best.loss}, {best.pooling}, rate {best.learning_rate:g}"
        return Row(name, chosen, queries, recipe=best)

    def _run(self, recipe, splits):
        """Trains a run, or finds it finished: validation score and folder."""
        from training.runs.trial import Trial

        content = json.dumps([recipe.settings, splits.classes()], default=str)
        name = hashlib.sha256(content.encode()).hexdigest()[:12]
        trial = Trial(self.command.output / "runs" / name, recipe)
        try:
            if not trial.is_finished:
                trial.train(splits, keep=True)
        except ValueError as error:
            # Embeddings, or their scores, of a training that diverged.
            if "finite" not in str(error):
                raise
            return -np.inf, trial.path
        return trial.validation_score(), trial.path


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-12)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("advise", __doc__, AdviseCommand, _advise, arguments)


def _advise(command):
    start = time.monotonic()
    advice = Advice(command, start)
    advice.run()
    minutes = (time.monotonic() - start) / 60
    page = page_of(advice, minutes)
    write_text(command.output / "advice.md", page)
    print(f"\n{page}\n{command.output}/advice.md")


def verdict(advice: Advice) -> str:
    """Says whether training pays, or that it cannot be told."""
    best, raw = advice.best, advice.rows[0]
    minutes = advice.command.minutes
    most = max(row.map_at_r for row in advice.rows)
    if most < TOO_LOW:
        return (
            f"Undecided: MAP@R is {100 * most:.1f} % at most, too low to "
            "compare rows. Take another backbone, or fine-tune it for "
            "thousands of steps with training.train."
        )
    gain = ""
    if best is not raw:
        points = interval(best.gain(raw, advice.classes))
        gain = f", which gains {points} points of MAP@R over the raw features"
    untried = [n for n in TRAINED if "no time" in advice.skipped.get(n, "")]
    if best.recipe is not None:
        text = f"Train: {best.name}{gain}."
    elif untried:
        text = (
            f"Whether training pays, this cannot tell in {minutes:g} minutes: "
            f"give --minutes {3 * minutes:g}. Without training: {best.name}"
            f"{gain}."
        )
    else:
        text = f"Do not train. Take {best.name}{gain}."
    cheaper = advice.rows[: advice.rows.index(best)]
    if cheaper:
        other = max(cheaper, key=lambda row: row.map_at_r)
        lead = best.gain(other, advice.classes)
        if lead["low"] <= 0 and other is not raw:
            text += (
                f" There is no significant difference to {other.name}, which "
                f"costs less: {interval(lead)}."
            )
    if best.recipe is not None and untried:
        text += f" No time was left for {' and '.join(untried)}."
    return text


def next_step(advice: Advice) -> str:
    """Returns the command or the code that goes on with the best row.

    Writes the encoder of a row without training to encoder.keras.
    """
    command, best = advice.command, advice.best
    if best.recipe is not None:
        return shlex.join(training_command(command, best.recipe))
    file = command.output / "encoder.keras"
    file.parent.mkdir(parents=True, exist_ok=True)
    build: Any = best.encoder
    build().save(file)
    lines = ["import keras", "", "import keras_gsp as gsp", ""]
    lines.append(
        f"encoder = keras.saving.load_model({str(file)!r}, compile=False)"
    )
    options = "photos, encoder"
    if best.augmentation is not None:
        lines.append(f"augmentation = gsp.retrieval.{best.augmentation!r}")
        lines.append(
            "index = gsp.retrieval.ExactIndex(augmentation=augmentation)"
        )
        options += ", index=index"
    return "\n".join(
        [
            *lines,
            f"photos = {command.data_dir!r}",
            f"retriever = gsp.retrieval.Retriever.from_folder({options})",
            "query = gsp.data.image_folder(photos).paths[0]",
            "print(retriever.search(query).ids)",
        ]
    )


def training_command(command: AdviseCommand, recipe: Recipe) -> list[str]:
    """Returns the command that trains a recipe to its end."""
    name: str = command.dataset
    if name == "folder" and recipe.cache_features:
        name = "folder-features"
    choices = {k: getattr(recipe, k) for k in ("backbone", "loss", "pooling")}
    base = named(name, **choices)
    words = ["python", "-m", "training.train", name]
    words += ["--data-dir", command.data_dir]
    for option, value in choices.items():
        words += [f"--{option}", value]
    for option in OPTIONS:
        value, word = getattr(recipe, option), option.replace("_", "-")
        if value == getattr(base, option):
            continue
        if isinstance(value, bool):
            words.append(f"--{word}" if value else f"--no-{word}")
        else:
            words += [f"--{word}", str(value)]
    return words


def page_of(advice: Advice, minutes: float) -> str:
    """Returns the advice as Markdown."""
    rows, best, raw = advice.rows, advice.best, advice.rows[0]
    lines = [
        *("# Should I train?", "", verdict(advice), ""),
        "| row | chosen | MAP@R % | gain over raw | minutes |",
        "| --- | --- | ---: | --- | ---: |",
    ]
    for row in rows:
        gain = ""
        if row is not raw:
            gain = interval(row.gain(raw, advice.classes))
        name = f"**{row.name}**" if row is best else row.name
        cells = [name, row.chosen, f"{100 * row.map_at_r:.1f}", gain]
        lines.append(f"| {' | '.join(cells)} | {row.seconds / 60:.1f} |")
    lines += [f"| {n} | {why} | | | |" for n, why in advice.skipped.items()]
    count = len({*advice.classes.tolist()})
    code = textwrap.indent(next_step(advice), "    ")
    lines += [
        "",
        "Bold is what to take. All rows are scored on the same "
        f"{len(advice.classes):,} images of {count} classes, which no row was "
        "trained on; a fifth of each class at a time searches the others. "
        "Gains are points of MAP@R, image by image, with 95 % intervals over "
        f"classes. It took {minutes:.1f} minutes.",
        *advice.notes,
        "\nNext:\n",
        f"{code}\n",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
