"""Should I train at all? `python -m training.advise --data-dir my_images`.

Tries what costs more and more on a folder of images: the backbone's raw
features, whitening, neighbor augmentation and second looks, which train
nothing; then heads on the frozen backbone, LoRA, fine-tuning. A third of the
classes is held out and scores every row; a quarter of the others validates and
chooses each row's settings. It stops when the minutes are over, and says what
it had no time for. The same command goes on from there.

`--output` gets advice.md, and encoder.keras of the best row without training.
"""

import contextlib
import hashlib
import json
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from training.recipes.recipe import Recipe, named
from training.recipes.settings import positive
from training.runs.command_line import command_of, is_list, run_command
from training.runs.run_directory import RunDirectory, write_text
from training.runs.scoring import part_scores
from training.runs.verdict import interval
from training.train import changed_settings

# With fewer, there are two classes to validate with.
MIN_CLASSES = 12
# MAP@R below which no row knows the images.
TOO_LOW = 0.1
# Images for each minute, fewer of each class where there are more.
IMAGES_A_MINUTE = 400
HEADS: list[dict[str, Any]] = [
    {},
    {"learning_rate": 3e-4},
    {"pooling": "gsp"},
    # A head learns fast: 100 times its rate would throw proxies about.
    {"loss": "proxy-anchor", "proxy_learning_rate_multiplier": 5.0},
]
TRAINED = "head", "LoRA", "fine-tuning"
# Settings that a trained row's command leaves to its recipe and images.
TRIED = (
    *("dataset", "data_dir", "cache_features", "classes_per_batch"),
    *("steps", "steps_per_evaluation"),
)


@dataclass(frozen=True)
class AdviseCommand:
    """Finds out what training would gain on a folder of images."""

    data_dir: str
    """Folder or archive of images with one folder per class, or CSV list."""
    minutes: Annotated[float, positive] = 10.0
    """Minutes after which it stops, the raw features' row at the least."""
    worth: Annotated[float, positive] = 1.0
    """Points of MAP@R, in %, that a more expensive row must gain."""
    backbone: str = "mobilenet-v2"
    """As for training.train."""
    backbone_weights: str | None = None
    """Weights file, as for training.train; by default ImageNet's."""
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
            dataset="csv" if is_list(self.data_dir) else "folder",
            data_dir=self.data_dir,
            corrupt_images="skip",
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
    encoder: Any = None
    """Of a row without training."""
    augmentation: Any = None
    recipe: Recipe | None = None
    """Of a trained row."""
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

    def __init__(self, command: AdviseCommand) -> None:
        self.command, self.recipe = command, command.recipe
        self.end = time.monotonic() + 60 * command.minutes
        self.rows: list[Row] = []
        self.skipped: dict[str, str] = {}

    @property
    def best(self) -> Row:
        """The row to take: each gains `worth` points over all before it."""
        best = self.rows[0]
        for row in self.rows[1:]:
            if 100 * (row.map_at_r - best.map_at_r) >= self.command.worth:
                best = row
        return best

    def run(self) -> None:
        """Embeds each image once, tries rows in order of cost, keeps time."""
        self._read()
        attempts = {
            "raw features": self._raw,
            "CLS + GeM": self._class_token,
            "whitening": self._whitened,
            "neighbor augmentation": self._augmented,
            "second look, sum": self._looks,
            "second look, window": self._looks,
            "head": self._head,
            "LoRA": self._tuned,
            "fine-tuning": self._tuned,
        }
        for name, attempt in attempts.items():
            begin, row = time.monotonic(), "no time"
            if not self.rows or begin < self.end:
                print(f"{name} ...", flush=True)
                with contextlib.suppress(TimeoutError):
                    row = attempt(name)
            if isinstance(row, str):
                self.skipped[name] = row
                continue
            row.seconds = time.monotonic() - begin
            self.rows.append(row)
            print(f"{name}: MAP@R {100 * row.map_at_r:.1f} %", flush=True)

    def _read(self):
        """Reads the images in three sides, embeds them; a third is held out."""
        from training.datasets.image_set import RetrievalSplits
        from training.recipes.data import check_sources, read_recipe
        from training.recipes.features import class_tokens, with_features
        from training.recipes.learner import build_backbone
        from training.runs.raw_baseline import pooled_sides

        # Images are looked at before any weights are.
        print(f"Reading {self.command.data_dir} ...", flush=True)
        self.uncached = self.recipe.with_(cache_features=False)
        weightless = self.uncached.with_(backbone_weights=None, frozen="none")
        images = read_recipe(weightless).every_image()
        count = images.num_classes
        if count < MIN_CLASSES:
            raise ValueError(
                f"`data_dir` must have at least {MIN_CLASSES} classes, so that "
                "a third is held out and some of the others validate. "
                f"Received: {count} in {self.command.data_dir}."
            )
        check_sources(self.recipe)
        most = max(4, int(IMAGES_A_MINUTE * self.command.minutes) // count)
        used = images.of_each_class(most)
        print(f"{len(used):,} of {len(images):,} images, {count} classes")
        sides = used.split_classes(count - count // 3)
        self.images = RetrievalSplits("images", *sides).with_validation(4, 0)
        self.classes = self.images.test.labels
        side = self.command.crop_size
        self.backbone = build_backbone(self.uncached, (side, side, 3))
        self.features = with_features(self.recipe, self.images)
        maps = build_backbone(self.recipe, self.features.train.images.shape[1:])
        self.pooled = pooled_sides(self.recipe, maps, self.features.sides())
        self.tokens: dict[str, Any] = {}
        if self.recipe.hub_preset:
            for name, part in self.images.sides().items():
                self.tokens[name] = class_tokens(self.recipe, part)

    def _row(self, name, chosen, rows, encoder, augmentation=None):
        queries = part_scores(rows["test"], self.classes, augmentation)
        return Row(name, chosen, queries, rows, encoder, augmentation)

    def _validated(self, rows):
        """Mean MAP@R of the validation classes."""
        labels = self.images.validation.labels
        return float(np.nanmean(part_scores(rows["validation"], labels)))

    def _free(self):
        """The best row so far by validation classes."""
        return max(self.rows, key=lambda row: self._validated(row.rows))

    def _raw(self, name):
        from training.runs.raw_baseline import pooling_of

        best = max(self.pooled, key=lambda k: self._validated(self.pooled[k]))
        encoder = self._encoder(pooling_of(best))
        return self._row(name, best, self.pooled[best], encoder)

    def _encoder(self, pooling):
        """The backbone's own features, pooled."""
        import keras_gsp as gsp
        from training.recipes.batches import preprocessing_of

        return gsp.models.build_encoder(
            self.backbone,
            embedding_size=None,
            pooling=pooling,
            preprocessing=preprocessing_of(self.uncached),
        )

    def _class_token(self, name):
        import keras

        import keras_gsp as gsp
        from training.recipes.features import with_class_token

        if self.tokens.get("test") is None:
            return "the backbone has no class token"
        unit = keras.layers.UnitNormalization()
        rows = {
            side: keras.ops.convert_to_numpy(
                unit(np.concatenate([unit(tokens), gem], axis=1))
            )
            for tokens, (side, gem) in zip(
                self.tokens.values(), self.pooled["GeM 3"].items(), strict=True
            )
        }
        both: Any = with_class_token(self.backbone)
        features, token = both.output
        patches = gsp.layers.GeneralizedMeanPooling(3.0)(features)
        joined = keras.layers.Concatenate()([unit(token), unit(patches)])
        encoder = keras.Model(both.input, unit(joined), name="encoder")
        return self._row(name, "GeM 3", rows, encoder)

    def _whitened(self, name):
        import keras

        from keras_gsp._encoding import input_of
        from training.runs.raw_baseline import whitenings

        base, labels = self._free(), self.images.train.labels
        tried = [*whitenings(self.recipe, base.rows, labels)]
        if not tried:
            return "features are equal within each class"
        layer, rows = max(tried, key=lambda pair: self._validated(pair[1]))
        output = layer(base.encoder.output)
        encoder = keras.Model(input_of(base.encoder), output, name="encoder")
        chosen = f"{layer.size} numbers, shrinkage {layer.shrinkage:g}"
        return self._row(name, chosen, rows, encoder)

    def _augmented(self, name):
        from keras_gsp.retrieval import NeighborAugmentation

        base, labels = self._free(), self.images.validation.labels
        chosen = NeighborAugmentation.chosen(base.rows["validation"], labels)
        if not chosen.num_neighbors:
            return "validation shows no gain"
        text = f"{chosen.num_neighbors} neighbors of {base.name}"
        return self._row(name, text, base.rows, base.encoder, chosen)

    def _looks(self, name):
        import keras_gsp as gsp
        from keras_gsp._labeled_batches import encoded
        from training.recipes.batches import evaluation_batches

        combine, window = "sum", None
        if "window" in name:
            combine, window = "second", 0.5
        pooling = gsp.layers.GeneralizedSumPooling(64, 0.3, 20.0)
        first, second = self._encoder(pooling), self.rows[0].encoder
        pooling.adapt(self.features.train.images[:512], seed=0)
        looks = gsp.models.TwoLooks(
            first, second, window=window, combine=combine
        )
        batches = evaluation_batches(self.uncached, self.images.test)
        queries = part_scores(encoded(looks, batches)[0], self.classes)
        return Row(name, f"GSP, {self.rows[0].chosen}", queries, encoder=looks)

    def _head(self, name):
        return self._trained(name, HEADS, self.recipe, self.features)

    def _tuned(self, name):
        heads: list[Any] = [x.recipe for x in self.rows if x.name == "head"]
        recipe, rank = [*heads, self.recipe][0], 8 if name == "LoRA" else None
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
        return self._trained(name, [{}], recipe, self.images)

    def _trained(self, name, variants, recipe, splits):
        """Trains what there is time for; validation classes choose."""
        from training.runs.scoring import load_test_embeddings

        scores: dict[Recipe, tuple] = {}
        count = min(recipe.classes_per_batch, splits.train.num_classes)
        with contextlib.suppress(TimeoutError):
            for settings in variants:
                tried = recipe.with_(**{"classes_per_batch": count} | settings)
                scores[tried] = self._run(tried, splits)
        if not scores:
            return "no time"
        best = max(scores, key=lambda tried: scores[tried][0])
        value, path = scores[best]
        if not np.isfinite(value):
            return "diverged"
        queries = part_scores(load_test_embeddings(path)["test"], self.classes)
        chosen = f"{best.loss}, {best.pooling}, rate {best.learning_rate:g}"
        return Row(name, chosen, queries, recipe=best)

    def _run(self, recipe, splits):
        """Trains a run, or finds it finished: validation score and folder.

        `TimeoutError` when the minutes are over; the run may go on later.
        """
        import keras

        from training.runs.train_run import train_run

        def check_time(batch, logs=None):
            if time.monotonic() >= self.end:
                raise TimeoutError

        content = json.dumps([recipe.settings, splits.classes()], default=str)
        name = hashlib.sha256(content.encode()).hexdigest()[:12]
        run = RunDirectory(self.command.output / "runs" / name)
        stop = keras.callbacks.LambdaCallback(on_train_batch_end=check_time)
        try:
            if not run.is_finished:
                train_run(
                    recipe, splits, run, keep_embeddings=True, callbacks=[stop]
                )
        except ValueError as error:
            # Embeddings, or their scores, of a training that diverged.
            if "finite" not in str(error):
                raise
            return -np.inf, run.path
        return run.read_scores()["val_map_at_r"], run.path


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("advise", __doc__, AdviseCommand, _advise, arguments)


def _advise(command):
    start = time.monotonic()
    advice = Advice(command)
    advice.run()
    page = page_of(advice, (time.monotonic() - start) / 60)
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
    text = f"Do not train. Take {best.name}{gain}."
    if best.recipe is not None:
        text = f"Train: {best.name}{gain}."
        if untried:
            text += f" No time was left for {' and '.join(untried)}."
    elif untried:
        text = (
            f"Whether training pays, this cannot tell in {minutes:g} minutes: "
            f"give --minutes {3 * minutes:g}. Without training: {best.name}"
            f"{gain}."
        )
    cheaper = advice.rows[: advice.rows.index(best)]
    other = max(cheaper, key=lambda row: row.map_at_r, default=raw)
    if other is not raw:
        lead = best.gain(other, advice.classes)
        if lead["low"] <= 0:
            text += (
                f" There is no significant difference to {other.name}, which "
                f"costs less: {interval(lead)}."
            )
    return text


def next_step(advice: Advice) -> str:
    """Returns the command or the code that goes on with the best row.

    Writes the encoder of a row without training to encoder.keras.
    """
    command, best = advice.command, advice.best
    if best.recipe is not None:
        return training_command(command, best.recipe)
    file = command.output / "encoder.keras"
    file.parent.mkdir(parents=True, exist_ok=True)
    best.encoder.save(file)
    index = ""
    if best.augmentation is not None:
        index = f"augmentation=gsp.retrieval.{best.augmentation!r}"
        index = f", index=gsp.retrieval.ExactIndex({index})"
    return f"""\
import keras

import keras_gsp as gsp

encoder = keras.saving.load_model({str(file)!r}, compile=False)
photos = {command.data_dir!r}
retriever = gsp.retrieval.Retriever.from_folder(photos, encoder{index})
query = gsp.data.image_folder(photos).paths[0]
print(retriever.search(query).ids)"""


def training_command(command: AdviseCommand, recipe: Recipe) -> str:
    """Returns the command that trains a recipe to its end."""
    name: str = recipe.dataset
    if name == "folder" and recipe.cache_features:
        name = "folder-features"
    changed = changed_settings(name, recipe)
    changed = {k: value for k, value in changed.items() if k not in TRIED}
    return command_of(name, {"data_dir": command.data_dir} | changed)


def page_of(advice: Advice, minutes: float) -> str:
    """Returns the advice as Markdown."""
    rows, best, raw = advice.rows, advice.best, advice.rows[0]
    lines = [
        *("# Should I train?", "", verdict(advice), ""),
        "| row | chosen | MAP@R % | gain over raw | minutes |",
        "| --- | --- | ---: | --- | ---: |",
    ]
    for row in rows:
        gain = "" if row is raw else interval(row.gain(raw, advice.classes))
        name = f"**{row.name}**" if row is best else row.name
        cells = [name, row.chosen, f"{100 * row.map_at_r:.1f}", gain]
        lines.append(f"| {' | '.join(cells)} | {row.seconds / 60:.1f} |")
    lines += [f"| {n} | {why} | | | |" for n, why in advice.skipped.items()]
    count = len({*advice.classes.tolist()})
    return "\n".join(
        [
            *lines,
            "",
            "Bold is what to take. All rows are scored on the same "
            f"{len(advice.classes):,} images of {count} classes, which no row "
            "was trained on; a fifth of each class at a time searches the "
            "others. Gains are points of MAP@R, image by image, with 95 % "
            f"intervals over classes. It took {minutes:.1f} minutes.",
            "\nNext:\n",
            textwrap.indent(next_step(advice), "    ") + "\n",
        ]
    )


if __name__ == "__main__":
    main()
