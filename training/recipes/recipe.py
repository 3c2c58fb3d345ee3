"""A recipe: every setting that defines a training run, and those with a name.

A name, and a choice of loss or method, imply the settings in `named.toml` or
`published.toml`.
"""

import difflib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from training.recipes.choices import (
    LOSSES,
    PAIR_LOSSES,
    POOLINGS,
    PROXY_LOSSES,
)
from training.recipes.settings import (
    Arguments,
    Dataset,
    check_fields,
    not_negative,
    positive,
    require,
    share,
    up_to_one,
)

BACKBONES = (
    *("glyph-cnn", "glyph-cnn-local", "glyph-cnn-global", "picture-cnn"),
    *("mobilenet-v2", "resnet50", "bn-inception"),
)
# Data sets without a published split.
OWN_SPLITS = ("folder", "csv")
# Where a data set has no validation classes, one of so many parts validates.
VALIDATION_FOLDS = 4
# Settings that are arguments by name. Those of a loss or a pooling are gone
# with it.
ARGUMENTS = {
    "data_arguments": None,
    "pooling_arguments": "pooling",
    "loss_arguments": "loss",
    "regularizer_arguments": None,
    "memory": None,
    "ccp_arguments": None,
}


DATA_ARGUMENTS = {
    "glyphs": ("canvas_size", "distractors"),
    "collage": ("images_per_class",),
}
CCP_ARGUMENTS = "patience", "warmup", "anchor_weight"


PUBLISHED = ("cub", "cars", "sop", "inshop")
# Recipe -> data set.
OWN = {"glyphs": "glyphs", "folder": "folder", "folder-features": "folder"}
OWN |= {"csv": "csv", "collage": "collage"}
# Columns of the papers' tables -> what they choose. A memory and proxies have
# two sizes there.
METHODS: dict[str, dict[str, str]] = {
    "gap": {},
    "gsp": {"pooling": "gsp"},
    "gsp-zsr": {"pooling": "gsp", "regularizer": "zsr"},
    "xml": {"regularizer": "xml"},
    "ccp": {"ccp": "on"},
    "ccp-s": {"ccp": "on", "size": "small"},
    # Printed as C1+CCP+GSP (thesis, table 5.1); GSP there includes ZSR.
    "ccp-gsp-zsr": {"ccp": "on", "pooling": "gsp", "regularizer": "zsr"},
    "xbm": {"memory": "xbm", "loss": "c1"},
    "xbm-s": {"memory": "xbm", "loss": "c1", "size": "small"},
}
METHODS["xbm-gsp-zsr"] = METHODS["xbm"] | METHODS["gsp-zsr"]
# Options that imply further settings.
CHOICES = ("loss", "pooling", "regularizer", "ccp", "backbone")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a training run, unchecked, as a command line has them."""

    dataset: Annotated[Dataset, tyro.conf.Suppress] = "glyphs"
    """Data set; all but `glyphs` are read from `data_dir`."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    data_arguments: Arguments = field(default_factory=dict)
    """glyphs: canvas_size=48, the side in pixels; distractors=false, no symbols
    around each letter: an upper bound; collage: images_per_class=9."""
    corrupt_images: Literal["raise", "skip"] = "raise"
    """List unreadable files in one error, or leave them out."""
    decisions: str | None = None
    """folder, csv: file of images to drop and labels to change, as
    training.doctor --review saves it."""
    augmentation: Literal["none", "mlrc", "mlrc-area"] = "none"
    """Random crops and flips: sides of 40-256 pixels, or area 0.16-1."""
    crop_size: Annotated[int | None, positive] = None
    """Side of the square crop, pixels; None keeps images as they are."""
    resize: Annotated[int | None, positive] = None
    """Shorter side from which crops are cut, pixels; None: the crop's size,
    which keeps square images whole."""

    backbone: str = "glyph-cnn"
    """glyph-cnn, mobilenet-v2, resnet50, ..., or hub:PRESET of keras-hub. The
    width of mobilenet-v2 is that of its weights, 1 without, or
    mobilenet-v2@0.35."""
    backbone_weights: str | None = None
    """Weights file, `imagenet` (downloaded) or `characters` (glyph-cnn, trained
    on single characters); None: random weights."""
    frozen: Literal["none", "batch-norm", "trunk", "all"] = "none"
    """Part of the backbone that is not trained; `trunk`: all before the last
    stage of mobilenet-v2 or resnet50, and batch normalization."""
    lora_rank: Annotated[int | None, positive] = None
    """Train low-rank factors of this rank in place of the backbone's weights,
    which are frozen; None: no LoRA."""
    cache_features: bool = False
    """Compute the frozen features once: frozen=all without augmentation,
    frozen=trunk of the whole image and of two random crops."""
    pooling: str = "gap"
    """gap, gmp, gem, gsp, or another of `gsp.layers`."""
    pooling_arguments: Arguments = field(default_factory=dict)
    """Arguments of its class that differ from the defaults: power=3."""
    projection_start: Literal["learned", "random"] = "random"
    """Start of the projection to `embedding_size`: learned whitening of the
    backbone's pooled features, with the shrinkage that is best on validation
    classes, or at random. With steps=0: whiten the features so, or not."""
    num_prototypes: Annotated[int, positive] = 64
    """gsp, zsr, xml: number of prototypes."""
    transport_ratio: Annotated[float, up_to_one] = 0.2
    """gsp: fraction of the features that is pooled, in (0, 1]."""
    inverse_temperature: Annotated[float, positive] = 10.0
    """gsp: sharpness of the selection."""
    embedding_size: Annotated[int, positive] = 128
    """Width of the embedding."""
    normalization: Literal["l2", "ball"] = "l2"
    """Embeddings on the unit sphere, or in the unit ball."""

    loss: str = "c2"
    """c1, c2, triplet, ms, proxy-nca, or another of `gsp.losses`."""
    loss_arguments: Arguments = field(default_factory=dict)
    """Arguments of its class that differ from the defaults: beta=20."""
    matryoshka_size: Annotated[int | None, positive] = None
    """Add the loss on the first half of the embedding, of that half, ... down
    to this size; None: on the whole embedding only."""

    regularizer: Literal["none", "zsr", "xml"] = "none"
    """Zero-shot regularizer or cross-batch metric learning."""
    regularizer_arguments: Arguments = field(default_factory=dict)
    """weight=0.1, its share of the loss (xml: 0.01), and arguments of its
    class: ridge=0.05, zsr: scale=1."""
    memory: Arguments = field(default_factory=dict)
    """Compare with a memory of past embeddings (XBM): capacity=1024, at least
    a batch, and warmup_steps=100, steps before it is used. Without: none."""
    ccp: Literal["off", "single", "on"] = "off"
    """Proxies from samples beside pairs: once, or alternating."""
    proxies_per_class: Annotated[int, positive] = 1
    """Proxies (soft-triple: centers) of a class."""
    ccp_pool_size: Annotated[int, positive] = 12
    """Samples of a class from which proxies are chosen."""
    ccp_arguments: Arguments = field(default_factory=dict)
    """patience=3, evaluations without a gain before the next problem;
    warmup=0, evaluations before the first one, which a network with random
    weights needs; anchor_weight=2e-4, pull towards the last solution."""
    in_batch_weight: Annotated[float | None, not_negative] = None
    """Weight of the loss within the batch beside the one against sampled
    proxies (None: 0.1) or memory (None: 1)."""

    classes_per_batch: Annotated[int, positive] = 16
    """Classes in a batch."""
    samples_per_class: Annotated[int, positive] = 4
    """Images of each class; pair losses need 2."""
    steps: Annotated[int, not_negative] = 900
    """Training steps; 0 scores the backbone's own features, pooled, and
    whitened as `projection_start` says."""
    steps_per_evaluation: Annotated[int, positive] = 100
    """Steps between two evaluations; the command rounds `steps` up to a
    multiple."""
    patience: Annotated[int | None, positive] = None
    """Evaluations without a gain before training stops; None: never."""
    validation_fold: Annotated[int, not_negative, tyro.conf.Suppress] = 0
    """Data sets without validation classes: which quarter of the training
    classes validates."""
    warmup_steps: Annotated[int, not_negative] = 0
    """First steps, in which the backbone is not trained."""
    learning_rate: Annotated[float, positive] = 1e-3
    """Learning rate of the network."""
    ramp_steps: Annotated[int, not_negative] = 0
    """First steps, in which rates rise from 0."""
    fall_share: Annotated[float, share] = 0.0
    """Last share of the steps, in which rates fall to 0 in a cosine."""
    backbone_learning_rate_multiplier: Annotated[float, up_to_one] = 1.0
    """Factor on the learning rate of the backbone, in (0, 1]."""
    proxy_learning_rate_multiplier: Annotated[float, positive] = 100.0
    """Factor on the learning rate of proxies."""
    seed: Annotated[int, not_negative] = 0
    """Seed of weights, batches and splits."""


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """The settings of a training run, checked.

    Settings out of range, or that others would ignore, raise `ValueError`.

    Example:
        recipe = Recipe().with_(loss="ms", loss_arguments={"beta": 10.0})
    """

    def __post_init__(self) -> None:
        check_fields(self)
        check_word("loss", self.loss, LOSSES)
        check_word("pooling", self.pooling, POOLINGS)
        if not self.hub_preset:
            check_word("backbone", self.backbone.partition("@")[0], BACKBONES)
        _check(self)

    def __hash__(self) -> int:
        return hash(json.dumps(self.settings, sort_keys=True))

    def with_(self, **settings: Any) -> "Recipe":
        """Returns a copy with other settings.

        Arguments by name are changed one by one. With another loss or pooling
        all others are its class's defaults.
        """
        for name in settings.keys() - self.settings.keys():
            similar = difflib.get_close_matches(name, self.settings, n=3)
            raise ValueError(
                f"A setting must be one of a recipe's. Received: {name}. "
                f"Similar: {', '.join(similar)}."
            )
        for name, owner in ARGUMENTS.items():
            arguments = getattr(self, name)
            if owner is not None:
                before = getattr(self, owner)
                if settings.get(owner, before) != before:
                    arguments = {}
            arguments = arguments | settings.get(name, {})
            # JSON has lists.
            settings[name] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in arguments.items()
            }
        return replace(self, **settings)

    @classmethod
    def of(cls, **settings: Any) -> "Recipe":
        """Returns the default recipe with other settings; see `with_`."""
        return cls().with_(**settings)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Recipe":
        """Returns the recipe of a run."""
        if unknown := settings.keys() - cls().settings.keys():
            raise ValueError(
                "A run's recipe must have settings of this version. Received: "
                f"{len(unknown)} unknown, first "
                f"{', '.join(sorted(unknown)[:3])}. Train the run again, or "
                "check out the commit that its settings.json names."
            )
        return cls.of(**settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, as in `settings.json`."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def images(self) -> tuple:
        """Settings on which the images, as they are read, depend."""
        return (
            *(self.dataset, self.data_dir, str(self.data_arguments)),
            *(self.corrupt_images, self.decisions, self.crop_size),
            *(self.resize, self.augmentation),
        )

    @property
    def uses_pairs(self) -> bool:
        """Whether the loss compares samples with each other."""
        return self.loss in PAIR_LOSSES

    @property
    def uses_proxy_loss(self) -> bool:
        """Whether the loss compares samples with proxies only."""
        return self.loss in PROXY_LOSSES

    @property
    def uses_proxies(self) -> bool:
        """Whether the training classes have proxies."""
        return self.uses_proxy_loss or self.samples_proxies

    @property
    def samples_proxies(self) -> bool:
        """Whether proxies start from samples."""
        return self.ccp != "off"

    @property
    def ccp_patience(self) -> int:
        """Evaluations without a gain before the next problem of CCP."""
        return self.ccp_arguments.get("patience", 3)

    @property
    def ccp_warmup(self) -> int:
        """Evaluations before the first problem of CCP."""
        return self.ccp_arguments.get("warmup", 0)

    @property
    def matryoshka_sizes(self) -> tuple[int, ...]:
        """Sizes of the embedding's parts that are trained, the whole first."""
        sizes = [self.embedding_size]
        while sizes[-1] // 2 >= (self.matryoshka_size or math.inf):
            sizes.append(sizes[-1] // 2)
        return tuple(sizes)

    @property
    def batch_size(self) -> int:
        """Images in a training batch."""
        return self.classes_per_batch * self.samples_per_class

    @property
    def interval(self) -> int:
        """Steps between two evaluations; a short run is evaluated once."""
        return min(self.steps_per_evaluation, max(self.steps, 1))

    @property
    def evaluations(self) -> int:
        """Evaluations of a run that is not stopped early."""
        return self.steps // self.interval

    @property
    def hub_preset(self) -> str:
        """Preset of keras-hub that is the backbone; empty for others."""
        return self.backbone.partition("hub:")[2]

    @property
    def shorter_side(self) -> int | None:
        """Shorter side, in pixels, from which the crop is cut."""
        return self.resize or self.crop_size


# The last layer of a backbone's trunk, where maps have twice the cells of the
# last ones a side.
LAST_STAGES = {"mobilenet-v2": "block_12_add", "resnet50": "conv4_block6_out"}


def check_word(name: str, word: str, known: Iterable[str]) -> None:
    """Raises `ValueError` for an unknown word, with similar ones."""
    known = list(known)
    if word not in known:
        similar = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
        hint = f" Similar: {', '.join(similar)}." if similar else ""
        some = f"{len(known)} known words" if similar else ", ".join(known)
        raise ValueError(
            f"`{name}` must be one of {some}. Received: {name}={word}.{hint}"
        )


def _check(r: Recipe) -> None:
    """Refuses settings that others would ignore.

    Layers, losses and learner check what they are given themselves.
    """

    def need(name, is_met, expectation):
        require(r, name, is_met, expectation)

    known = DATA_ARGUMENTS.get(r.dataset, ())
    are_known = r.data_arguments.keys() <= {*known}
    of_set = f"of dataset={r.dataset}: {', '.join(known) or 'none'}"
    need("data_arguments", are_known, of_set)
    if r.dataset not in OWN_SPLITS:
        need("decisions", r.decisions is None, "for a folder or a list")
    are_known = r.ccp_arguments.keys() <= {*CCP_ARGUMENTS}
    need("ccp_arguments", are_known, f"of {', '.join(CCP_ARGUMENTS)}")
    is_cut = r.resize is None or r.resize >= (r.crop_size or math.inf)
    need("resize", is_cut, f"None or at least crop_size={r.crop_size}")
    has_stages = r.backbone.partition("@")[0] in LAST_STAGES
    of = " or ".join(LAST_STAGES)
    need("frozen", r.frozen != "trunk" or has_stages, f"trunk of {of} alone")
    is_fixed = r.frozen == "all" and r.augmentation == "none"
    is_fixed |= r.frozen == "trunk"
    unless = "False unless frozen=trunk, or all with augmentation=none"
    need("cache_features", is_fixed or not r.cache_features, unless)
    is_plain = r.steps > 0 and not r.cache_features and r.frozen != "trunk"
    unless = "None with cache_features, frozen=trunk or steps=0"
    need("lora_rank", is_plain or r.lora_rank is None, unless)
    is_split = r.regularizer == "none" or r.classes_per_batch > 1
    need("classes_per_batch", is_split, "2 or more with a regularizer")
    has_pairs = not r.uses_pairs or r.samples_per_class > 1
    need("samples_per_class", has_pairs, f"2 or more with loss={r.loss}")
    if r.matryoshka_size is not None:
        sizes = r.matryoshka_sizes
        is_half = len(sizes) > 1 and sizes[-1] == r.matryoshka_size
        need(
            "matryoshka_size",
            is_half and r.steps > 0,
            f"embedding_size={r.embedding_size} halved once or more, or None "
            "with steps=0",
        )
    if r.steps:
        _check_steps(r, need)


def _check_steps(r, need):
    """Refuses steps after the last evaluation, and what begins after them."""
    every = f"steps_per_evaluation={r.steps_per_evaluation}"
    is_even = r.steps % r.interval == 0
    need("steps", is_even, f"a multiple of {every}, or below it")
    below = f"below steps={r.steps}"
    need("warmup_steps", r.warmup_steps < r.steps, below)
    starts = r.memory.get("warmup_steps", 100) if r.memory else 0
    need("memory", starts < r.steps, f"used {below}")
    need(
        "ccp_arguments",
        r.ccp != "single" or r.ccp_warmup < r.evaluations,
        f"a warmup below the {r.evaluations} evaluations",
    )
    if r.ccp != "on":
        return
    # One evaluation of a problem that improves, `patience` that do not, and
    # one of the second problem.
    fewest = r.ccp_warmup + r.ccp_patience + 2
    need(
        "ccp",
        r.evaluations >= fewest,
        f"single with {r.evaluations} evaluations: a second problem needs "
        f"{fewest} (warmup + patience + 2). Evaluate more often, train longer "
        "or lower the patience of ccp_arguments",
    )
    need(
        "patience",
        r.patience is None or r.patience > r.ccp_patience,
        f"above ccp_arguments patience={r.ccp_patience} with ccp=on, or "
        "training stops when the second problem begins",
    )


def names() -> dict[str, str]:
    """Maps recipes that have a name to their data sets."""
    words = ["", *(f"-{word}" for word in METHODS if word != "gap")]
    return OWN | {f"{one}{word}": one for one in PUBLISHED for word in words}


@cache
def settings_of(file: str) -> list[dict[str, Any]]:
    """Reads the settings in one of the two files."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    return tomllib.loads(text)["setting"]


def named(name: str, **choices: str) -> Recipe:
    """Returns the recipe of a name, with the settings that a choice implies.

    `choices` are some of `CHOICES`: `named("glyphs", loss="ms")`.
    """
    check_word("recipe", name, names())
    dataset, file = names()[name], "named.toml"
    default = Recipe()
    chosen = {one: getattr(default, one) for one in CHOICES}
    if dataset in PUBLISHED:
        file = "published.toml"
        chosen |= {"backbone": "bn-inception"}
        choices = METHODS.get(name.partition("-")[2], {}) | choices
    elif dataset in ("folder", "csv"):
        chosen |= {"backbone": "mobilenet-v2", "loss": "ms", "pooling": "gem"}
    chosen |= {**choices, "recipe": name, "dataset": dataset}
    check_word("loss", chosen["loss"], LOSSES)
    is_pairs = chosen["loss"] in PAIR_LOSSES
    chosen["kind"] = "pairs" if is_pairs else "proxies"
    values: dict[str, Any] = {"dataset": dataset}
    for setting in settings_of(file):
        when = setting.get("when", {}).items()
        if all(chosen.get(key) in words for key, words in when):
            values |= setting.get("values", {}) | setting.get(dataset, {})
    options = {key: word for key, word in choices.items() if key in CHOICES}
    return Recipe.of(**values | options)
