"""A recipe: every setting that defines a training run."""

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from training.recipes.choices import (
    PAIR_LOSSES,
    PROXY_LOSSES,
    losses,
    poolings,
)
from training.recipes.settings import GROUPS, Settings, check_fields, require

BACKBONES = (
    *("glyph-cnn", "glyph-cnn-local", "glyph-cnn-global", "picture-cnn"),
    *("mobilenet-v2", "resnet50", "bn-inception"),
)
# Data sets without a published split.
OWN_SPLITS = ("folder", "csv")
GROUP_OF = {one.name: name for name in GROUPS for one in fields(GROUPS[name])}
# Settings of earlier versions, and the one value that is this version's.
REMOVED = {
    "teacher": None,
    "distillation": "regression",
    "neighbor_classes": None,
    "whitening_shrinkage": 0.1,
    "anchor_decay": 1.0,
    "ccp_pool": "data",
    "ccp_rollback": False,
    "source": "disk",
    "miner": "none",
    "freeze_proxies": False,
}


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """Settings of one training run, in groups.

    Every setting can be read by its own name: `recipe.learning_rate` is
    `recipe.optimization.learning_rate`. Settings out of range, or that others
    would ignore, raise `ValueError`.

    Example:
        recipe = Recipe().with_(loss="ms", loss_arguments={"beta": 10.0})
    """

    def __post_init__(self) -> None:
        for group in GROUPS:
            check_fields(getattr(self, group))
        check_word("loss", self.loss, losses())
        check_word("pooling", self.pooling, poolings())
        if not self.hub_preset:
            check_word("backbone", self.backbone, BACKBONES)
        for name, is_met, expectation in _conditions(self):
            require(self, name, is_met, expectation)

    def __hash__(self) -> int:
        return hash(json.dumps(self.settings, sort_keys=True))

    def __getattr__(self, name: str) -> Any:
        group = GROUP_OF.get(name)
        if group is None:
            raise AttributeError(f"A recipe has no setting {name}.")
        return getattr(self.__dict__[group], name)

    def with_(self, **settings: Any) -> "Recipe":
        """Returns a copy with other settings.

        `loss_arguments` and `pooling_arguments` change the named arguments;
        with another loss or pooling all others are its class's defaults.
        """
        for name in settings.keys() - GROUP_OF.keys():
            similar = difflib.get_close_matches(name, GROUP_OF, n=3)
            raise ValueError(
                f"A setting must be one of a recipe's. Received: {name}. "
                f"Similar: {', '.join(similar)}."
            )
        for word in ("loss", "pooling"):
            name, before = f"{word}_arguments", getattr(self, word)
            is_same = settings.get(word, before) == before
            own = getattr(self, name) if is_same else {}
            own = own | settings.get(name, {})
            # JSON has lists.
            settings[name] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in own.items()
            }
        groups = {group: getattr(self, group) for group in GROUPS}
        for name, value in settings.items():
            group = GROUP_OF[name]
            groups[group] = replace(groups[group], **{name: value})
        return Recipe(**groups)

    @classmethod
    def of(cls, **settings: Any) -> "Recipe":
        """Returns the default recipe with other settings; see `with_`."""
        return cls().with_(**settings)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Recipe":
        """Returns the recipe of a run, perhaps of an earlier version."""
        own = {k: settings[k] for k in settings.keys() & GROUP_OF.keys()}
        unknown = [
            name
            for name in settings.keys() - GROUP_OF.keys()
            if name not in REMOVED or settings[name] != REMOVED[name]
        ]
        if unknown:
            raise ValueError(
                "A run's recipe must have settings of this version. Received: "
                f"{len(unknown)} unknown, first "
                f"{', '.join(sorted(unknown)[:3])}. Train the run again, or "
                "check out the commit that its settings.json names."
            )
        size = own.get("crop_size")
        if "projection_start" not in own and size and own["resize"] is None:
            own["resize"] = round(size * 256 / 227)
        return cls.of(**own)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, as in `settings.json`."""
        return {name: getattr(self, name) for name in GROUP_OF}

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
        return self.uses_proxy_loss or self.ccp != "off"

    @property
    def samples_proxies(self) -> bool:
        """Whether proxies start from samples."""
        return self.ccp in ("single", "on")

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


def check_word(name: str, word: str, known: Iterable[str]) -> None:
    """Raises `ValueError` for an unknown word, with similar ones."""
    known = list(known)
    if word not in known:
        similar = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
        hint = f" Similar: {', '.join(similar)}." if similar else ""
        raise ValueError(
            f"`{name}` must be one of {', '.join(known)}. "
            f"Received: {name}={word}.{hint}"
        )


def _conditions(r: Recipe) -> Iterator[tuple[str, bool, str]]:
    """Yields settings that others would ignore: name, is it met, expectation.

    Layers, losses and learner check what they are given themselves.
    """
    drawn, dataset = ("glyphs", "collage"), f"with dataset={r.dataset}"
    for name, known, unset in (
        ("train_classes", OWN_SPLITS, None),
        ("decisions", OWN_SPLITS, None),
        ("images_per_class", drawn[1:], None),
        ("canvas_size", drawn, None),
        ("distractors", drawn, True),
    ):
        is_met = r.dataset in known or getattr(r, name) == unset
        yield name, is_met, f"{unset} {dataset}"
    is_cut = r.resize is None or r.resize >= (r.crop_size or math.inf)
    yield "resize", is_cut, f"None or at least crop_size={r.crop_size}"
    is_random = r.augmentation != "none"
    is_cached = is_random or r.crop_size is None or r.cache_features
    yield (
        *("cache_images", not (r.cache_images and is_cached)),
        "False unless augmentation=none, with a crop_size and without "
        "cache_features",
    )
    is_cached = r.frozen == "all" and not is_random
    yield (
        *("cache_features", is_cached or not r.cache_features),
        "False unless frozen=all and augmentation=none",
    )
    is_plain = r.lora_rank is None or (r.steps > 0 and not r.cache_features)
    yield "lora_rank", is_plain, "None with cache_features or steps=0"
    yield "whitening", r.whitening == "none" or not r.steps, "none with steps"
    is_split = r.regularizer == "none" or r.classes_per_batch > 1
    yield "classes_per_batch", is_split, "2 or more with a regularizer"
    is_new = r.ccp != "learned" or not r.uses_proxy_loss
    yield "ccp", is_new, f"off, single or on with loss={r.loss}, of proxies"
    is_paired = not r.uses_pairs or r.samples_per_class > 1
    text = f"2 or more with loss={r.loss}, of pairs"
    yield "samples_per_class", is_paired, text
    if r.matryoshka_size is not None:
        sizes = r.matryoshka_sizes
        is_half = len(sizes) > 1 and sizes[-1] == r.matryoshka_size
        yield (
            *("matryoshka_size", is_half and r.steps > 0),
            f"embedding_size={r.embedding_size} halved once or more, or None "
            "with steps=0",
        )
    if r.steps:
        yield from _step_conditions(r)


def _step_conditions(r):
    every = f"steps_per_evaluation={r.steps_per_evaluation}"
    is_even = r.steps % r.interval == 0
    yield "steps", is_even, f"a multiple of {every}, or below it"
    below = f"below steps={r.steps}"
    yield "warmup_steps", r.warmup_steps < r.steps, below
    is_used = r.memory == "none" or r.memory_warmup_steps < r.steps
    yield "memory_warmup_steps", is_used, below
    is_begun = r.ccp != "single" or r.ccp_warmup < r.evaluations
    text = f"below the {r.evaluations} evaluations, or nothing is sampled"
    yield "ccp_warmup", is_begun, text
    if r.ccp != "on":
        return
    # One evaluation of a problem that improves, `ccp_patience` that do not,
    # and one of the second problem.
    fewest = r.ccp_warmup + r.ccp_patience + 2
    yield (
        *("ccp", r.evaluations >= fewest),
        f"single with {r.evaluations} evaluations: a second problem needs "
        f"{fewest} (ccp_warmup + ccp_patience + 2). Evaluate more often, train "
        "longer or lower ccp_patience",
    )
    yield (
        *("patience", r.patience is None or r.patience > r.ccp_patience),
        f"above ccp_patience={r.ccp_patience} with ccp=on, or training stops "
        "when the second problem begins",
    )
