"""Steps of growing cost from a pretrained network, scored on unseen classes.

Three folds hold a third of the classes out in turn. In each, a quarter of the
other classes validates: on it, in the first fold, a step chooses its loss,
pooling, learning rate and number of training steps. The classes held out are
only scored.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory, write_json

FOLDS, VALIDATION_FOLDS = 3, 4
# With fewer, a fold has two classes to validate with.
MIN_CLASSES = 12
POOLINGS: tuple[dict[str, Any], ...] = (
    {"pooling": "gap"},
    {"pooling": "gsp"},
    {
        "pooling": "gsp-affine",
        "transport_ratio": 0.1,
        "inverse_temperature": 80.0,
    },
    {"pooling": "delf"},
    {"pooling": "sim-pool"},
)
LOSSES: tuple[dict[str, Any], ...] = (
    {"loss": "ms", "proxy_learning_rate_multiplier": 100.0},
    # A head learns fast: 100 times its rate would throw proxies about.
    {"loss": "proxy-anchor", "proxy_learning_rate_multiplier": 5.0},
)
# The first compares poolings and losses.
HEAD_RATES, LORA_RATES, TUNING_RATES = (3e-3, 6e-4), (1e-3, 1e-4), (1e-4, 1e-5)
EVALUATIONS = 4
# Share of the time after which heads compare nothing more.
HEAD_SHARE = 0.25
# Settings that images, or their features, depend on.
OF_IMAGES = (
    *("cache_features", "crop_size", "resize"),
    *("backbone", "backbone_weights", "backbone_width"),
)
# Side of a closer cut, as a share of the image's.
CLOSER = 0.7
# A training step costs about three passes through the backbone.
PASSES = 3


@dataclass(eq=False)
class Step:
    """One way from images to embeddings, and how well it does."""

    name: str
    recipe: Recipe
    scores: list[np.ndarray] = field(default_factory=list)
    """MAP@R of each query, in %, for each fold."""
    classes: list[np.ndarray] = field(default_factory=list)
    """Classes of the queries, for each fold."""
    minutes: float = 0.0
    note: str = ""
    """Why not all folds were scored, if so."""
    is_rising: bool = False
    """Twice the steps may gain what is worth it: the last doubling did, or
    would if scores rose on as between the last two evaluations."""

    @property
    def map_at_r(self) -> float:
        """Mean over queries with another image of their class, in %."""
        return float(np.nanmean(np.concatenate(self.scores)))

    def gain(self, base: "Step") -> dict[str, float]:
        """Paired difference to another step in points, with 95 % interval."""
        from keras_gsp.metrics import paired_difference

        count = min(len(self.scores), len(base.scores))
        found = paired_difference(
            np.concatenate(self.scores[:count]),
            np.concatenate(base.scores[:count]),
            np.concatenate(self.classes[:count]),
        )
        return {name: found[name] for name in ("difference", "low", "high")}


class Trial:
    """Tries one step after another: `steps`, in order, and `skipped`.

    `features` are recipes of the raw features of each backbone; runs in
    `folder` that are finished are not repeated. A step that would take longer
    than `minutes` is skipped, one that gains less than `worth` points of MAP@R
    is the last. LoRA and fine-tuning first train for `tuning_steps`. The better
    one doubles them, up to `longest`, while that gains `worth` points on the
    validation classes and time is left.
    """

    def __init__(
        self,
        features: Sequence[Recipe],
        folder: Path,
        *,
        minutes: float,
        worth: float,
        head_steps: int,
        tuning_steps: int,
        longest: float = np.inf,
    ) -> None:
        self.features, self.folder, self.worth = features, folder, worth
        self.head_steps, self.tuning_steps = head_steps, tuning_steps
        self.longest = longest
        self.start = time.monotonic()
        self.end = self.start + 60 * minutes
        self.steps: list[Step] = []
        self.skipped: dict[str, float] = {}
        self._images: dict[tuple, Any] = {}
        self._validated: dict[Recipe, float] = {}
        # Of each run of the step at hand.
        self._seconds: dict[str, float] = {}

    def run(self) -> None:
        """Fills `steps`, until a step is not worth it or the time is up."""
        raw = self._try("raw features", self.features)
        channels = self._splits(raw.recipe, 0).train.images.shape[-1]
        flat = raw.recipe.with_(
            embedding_size=min(raw.recipe.embedding_size, channels)
        )
        whitened = [flat.with_(whitening=kind) for kind in ("pca", "learned")]
        self._try("whitening", whitened)
        head = _trained(raw.recipe, self.head_steps)
        step = self._try(
            "head",
            [head.with_(**own) for own in POOLINGS],
            HEAD_RATES,
            lambda best: [best.with_(**own) for own in LOSSES],
        )
        tuned = _trained(step.recipe if step else head, self.tuning_steps)
        tuned = tuned.with_(cache_features=False, frozen="batch-norm")
        tuned = tuned.with_(augmentation="mlrc-area", lora_rank=8)
        # A head's best loss may be a poor one for all weights.
        pairs = tuned.with_(**LOSSES[0])
        lora = self._try("LoRA", [tuned, pairs], LORA_RATES)
        if lora is not None and not lora.note.startswith("stopped"):
            tuned = lora.recipe.with_(lora_rank=None)
            self._try("fine-tuning", [tuned], TUNING_RATES)
        self._lengthen()
        best = self.best
        for step in sorted(self.steps, key=lambda one: one is not best):
            self._add_folds(step)

    @property
    def best(self) -> Step:
        """The step to take: each gains `worth` points over all before it.

        A later step counts too whose scores were still rising, if its interval
        reaches such a gain.
        """
        best = self.steps[0]
        for step in self.steps[1:]:
            gain = step.gain(best)
            end = "high" if step.is_rising else "difference"
            if gain[end] >= self.worth:
                best = step
        return best

    def hints(self) -> dict[str, dict[str, float]]:
        """Gains of other data, estimated by subsampling and a closer cut.

        In one fold where the time is up.
        """
        raw, found = self.steps[0], {}
        folds = 1 if time.monotonic() > self.end else FOLDS
        side = round(raw.recipe.crop_size / CLOSER)
        closer = Step("", raw.recipe.with_(resize=side))
        self._score(closer, folds)
        found["cutting images closer"] = closer.gain(raw)
        for head in [step for step in self.steps if step.name == "head"]:
            for name, half in (
                ("twice the classes", _half_of_classes),
                ("twice the images of a class", _half_of_images),
            ):
                less = Step("", head.recipe)
                self._score(less, min(folds, len(head.scores)), half)
                found[name] = head.gain(less)
        return found

    def milliseconds(self, recipe: Recipe) -> float:
        """Time of one image through the backbone, in a batch of 32."""
        from keras_gsp.embeddings.processes import predictor
        from training.recipes.backbone import build_backbone

        plain = recipe.with_(cache_features=False, lora_rank=None)
        side = recipe.crop_size
        predict = predictor(build_backbone(plain, (side, side, 3)))
        images = np.zeros((32, side, side, 3), "uint8")
        predict(images)
        start = time.perf_counter()
        predict(images)
        return 1000 * (time.perf_counter() - start) / len(images)

    def _try(self, name, recipes, rates=(), more=None):
        """Scores a step in its first fold; None if there is no time for it."""
        seconds = self._predicted(recipes[0])
        seconds *= max(1, len({*recipes}) + len(rates) - 1)
        if self.steps and time.monotonic() + seconds > self.end:
            self.skipped[name] = seconds / 60
            print(f"{name}: not tried, needs {seconds / 60:.1f} min or more")
            return None
        self._seconds.clear()
        chosen = self._chosen([one.with_(**_at(rates[:1])) for one in recipes])
        for one in more(chosen) if more else ():
            chosen = self._chosen([chosen, one])
        chosen = self._chosen(
            [chosen, *(chosen.with_(**_at([rate])) for rate in rates[1:])]
        )
        if np.isinf(self._validated[chosen]):
            print(f"{name}: diverged at every rate")
            return None
        step = Step(name, chosen)
        self._score(step, 1)
        step.is_rising = self._is_rising(chosen)
        gains = not self.steps or step.gain(self.best)["high"] >= self.worth
        if not gains and not step.is_rising:
            step.note = "stopped: its first fold excludes a gain worth it"
        step.minutes = sum(self._seconds.values()) / 60
        self.steps.append(step)
        print(f"{name}: MAP@R {step.map_at_r:.1f} %. {step.note}", flush=True)
        if recipes[0].cache_features:
            self._add_folds(step)
        return step

    def _lengthen(self):
        """Doubles training steps of the better of LoRA and fine-tuning."""
        while rising := [
            step
            for step in self.steps
            if step.is_rising and not step.recipe.cache_features
        ]:
            step = max(rising, key=lambda one: self._validated[one.recipe])
            longer = _trained(step.recipe, 2 * step.recipe.steps)
            seconds = self._predicted(longer)
            if (
                longer.steps > self.longest
                or time.monotonic() + seconds > self.end
            ):
                break
            self._seconds.clear()
            before = self._validated[step.recipe]
            if self._chosen([step.recipe, longer]) == longer:
                step.recipe = longer
                step.scores, step.classes = [], []
                self._score(step, 1)
            gain = 100 * (self._validated[longer] - before)
            step.is_rising = gain >= self.worth
            step.minutes += sum(self._seconds.values()) / 60
            print(
                f"{step.name}, {longer.steps} steps: MAP@R "
                f"{step.map_at_r:.1f} %",
                flush=True,
            )

    def _add_folds(self, step):
        """Scores the other folds of a step, if there is time."""
        if step.note.startswith("stopped") or len(step.scores) == FOLDS:
            return
        self._seconds.clear()
        self._run(step.recipe, 0)
        rest = (FOLDS - len(step.scores)) * sum(self._seconds.values())
        step.note = ""
        if step is not self.steps[0] and time.monotonic() + rest > self.end:
            step.note = "one fold: no time for the others"
            return
        self._seconds.clear()
        self._score(step, FOLDS)
        step.minutes += sum(self._seconds.values()) / 60

    def _chosen(self, recipes):
        """The recipe with the best score on validation classes."""
        share = HEAD_SHARE if recipes[0].cache_features else 1.0
        end = self.start + share * (self.end - self.start)
        scores = self._validated
        for recipe in recipes:
            if recipe not in scores and (
                recipe is recipes[0] or time.monotonic() < end
            ):
                scores[recipe] = self._validation_score(recipe)
        return max(filter(scores.__contains__, recipes), key=scores.__getitem__)

    def _validation_score(self, recipe):
        if not recipe.steps:
            directory = self._run(recipe, 0, of_validation=True)
            return directory.read_scores()["map_at_r"]
        try:
            directory = self._run(recipe, 0)
        except ValueError as error:
            # Embeddings, or their scores, of a training that diverged.
            if "finite" not in str(error):
                raise
            return -np.inf
        lines = directory.read_history()
        return max(line[f"val_{recipe.chosen_by}"] for line in lines)

    def _is_rising(self, recipe):
        lines = self._run(recipe, 0).read_history()
        scores = [100 * line[f"val_{recipe.chosen_by}"] for line in lines]
        if len(scores) < 2:
            return False
        return (scores[-1] - max(scores[:-1])) * len(scores) >= self.worth

    def _score(self, step, num_folds, half=None):
        """Adds the scores of further folds to a step."""
        import keras_gsp as gsp
        from training.runs.scoring import load_test_embeddings

        for fold in range(len(step.scores), num_folds):
            directory = self._run(step.recipe, fold, half=half)
            labels = self._splits(step.recipe, fold).test.labels
            found = gsp.metrics.retrieval_scores(
                load_test_embeddings(directory.path)["test"],
                labels,
                per_query=True,
            )
            step.scores.append(100 * found["per_query"]["map_at_r"])
            # A class is in one fold alone.
            step.classes.append(labels + fold * 10**6)

    def _run(self, recipe, fold, *, half=None, of_validation=False):
        """Trains one run, or finds it finished, and returns its directory."""
        from training.recipes.data import check_classes
        from training.runs.train_run import train_run

        part = [getattr(half, "__name__", ""), of_validation, fold]
        content = json.dumps([recipe.settings, part], default=str)
        name = hashlib.sha256(content.encode()).hexdigest()[:12]
        directory = RunDirectory(self.folder / "runs" / name)
        times = directory.path / "seconds.json"
        if directory.is_finished and times.exists():
            self._seconds[name] = json.loads(times.read_text())["seconds"]
            return directory
        splits = self._splits(recipe, fold)
        if half is not None:
            splits = replace(splits, train=half(splits.train))
        if of_validation:
            splits = replace(
                splits, test=splits.validation, validation=splits.test
            )
        count = min(recipe.classes_per_batch, splits.train.num_classes)
        recipe = recipe.with_(classes_per_batch=count)
        check_classes(recipe, splits)
        start = time.monotonic()
        if not directory.is_finished:
            train_run(
                recipe,
                splits,
                directory,
                label=f"{recipe.loss} {recipe.pooling} fold {fold}",
                keep_embeddings=True,
            )
        self._seconds[name] = time.monotonic() - start
        write_json(times, {"seconds": self._seconds[name]})
        return directory

    def _splits(self, recipe, fold):
        """The classes that train, validate and are held out."""
        from training.recipes.data import read_recipe

        key = tuple(getattr(recipe, name) for name in OF_IMAGES)
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

    def _predicted(self, recipe):
        """Seconds of a run that trains the backbone; heads take few."""
        if recipe.cache_features:
            return 0.0
        splits = self._splits(recipe, 0)
        passes = PASSES * recipe.batch_size * recipe.steps
        passes += len(splits.validation) * recipe.evaluations
        passes += len(splits.test)
        return passes * self.milliseconds(recipe) / 1000


def _at(rates):
    """The setting of a learning rate, if there is one."""
    return {"learning_rate": rates[0]} if rates else {}


def _trained(recipe, steps):
    """With this number of steps, or a few less that evaluations divide."""
    interval = max(1, steps // EVALUATIONS)
    return recipe.with_(
        steps=steps - steps % interval, steps_per_evaluation=interval
    )


def _half_of_classes(images):
    return images.of_classes(np.arange(0, images.num_classes, 2))


def _half_of_images(images):
    return images.of_each_class(max(2, int(np.median(images.class_sizes)) // 2))
