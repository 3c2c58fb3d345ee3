"""A recipe: every setting that defines a training run."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from training.recipes.settings import (
    GROUPS,
    Arguments,
    Method,
    Settings,
    check_fields,
    require,
)

BACKBONES = (
    *("glyph-cnn", "glyph-cnn-local", "glyph-cnn-global", "picture-cnn"),
    *("mobilenet-v2", "resnet20"),
    *("resnet20-v2", "resnet50", "bn-inception"),
)
# First part of a backbone that is a preset of keras-hub.
HUB_PREFIX = "hub:"
# The papers' sizes: images of 256 pixels, crops of 227.
RESIZE_OVER_CROP = 256 / 227
# Data sets without a published split.
OWN_SPLITS = ("folder", "csv")
GROUP_OF = {
    field.name: group
    for group, kind in GROUPS.items()
    for field in fields(kind)
}


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """Settings of one training run, in groups.

    Every setting can be read by its own name, as options of the command line
    are spelled: `recipe.learning_rate` is `recipe.optimization.learning_rate`.
    Settings out of range, or in conflict, raise `ValueError`.

    Example:
        recipe = Recipe().with_(loss="ms", loss_arguments={"beta": 10.0})
    """

    def __post_init__(self) -> None:
        choices = _choices()
        for group in GROUPS:
            check_fields(getattr(self, group))
        check_word("loss", self.loss, choices.losses())
        check_word("pooling", self.pooling, choices.poolings())
        # A loss or a pooling without arguments has those of its class.
        pooling = choices.pooling_arguments(self.pooling)
        for group, name, arguments in (
            ("objective", "loss_arguments", choices.loss_arguments(self.loss)),
            ("encoder", "pooling_arguments", pooling),
        ):
            if type(getattr(self, name)) is not type(arguments):
                complete = replace(getattr(self, group), **{name: arguments})
                object.__setattr__(self, group, complete)
        for name, expectation in _conflicts(self):
            require(self, name, False, expectation)
        # The classes check their own arguments.
        choices.losses()[self.loss](**vars(self.loss_arguments))
        chosen = self.pooling_arguments
        if chosen != pooling:
            choices.poolings()[self.pooling](name="pooling", **vars(chosen))

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
        choices = _choices()
        for word, known, defaults in (
            ("loss", choices.losses(), choices.loss_arguments),
            ("pooling", choices.poolings(), choices.pooling_arguments),
        ):
            before = getattr(self, word)
            now = settings.get(word, before)
            check_word(word, now, known)
            name = f"{word}_arguments"
            own = getattr(self, name) if now == before else defaults(now)
            settings[name] = _changed(own, settings.get(name, {}), now)
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
        """Returns the recipe that `settings` describes.

        A setting that an earlier version did not have takes its default.
        Raises `ValueError` for settings that this version does not have.
        """
        unknown = settings.keys() - GROUP_OF.keys()
        if unknown:
            raise ValueError(
                "A run's recipe must have settings of this version. "
                f"Received: {len(unknown)} unknown, first "
                f"{', '.join(sorted(unknown)[:3])}. "
                "Train the run again, or check out the commit that its "
                "settings.json names."
            )
        return cls.of(**settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, as in `settings.json`."""
        return {
            name: asdict(value) if name.endswith("_arguments") else value
            for group in GROUPS
            for name, value in vars(getattr(self, group)).items()
        }

    @property
    def uses_pairs(self) -> bool:
        """Whether the loss compares samples with each other."""
        return _choices().is_pair_loss(self.loss)

    @property
    def uses_proxy_loss(self) -> bool:
        """Whether the loss compares samples with proxies only."""
        return _choices().is_proxy_loss(self.loss)

    @property
    def uses_proxies(self) -> bool:
        """Whether the training classes have proxies."""
        return self.uses_proxy_loss or self.ccp != "off"

    @property
    def samples_proxies(self) -> bool:
        """Whether proxies start from samples."""
        return self.ccp in ("single", "on")

    @property
    def uses_recent_samples(self) -> bool:
        """Whether proxies are sampled from embeddings of recent batches."""
        return self.ccp == "on" and self.ccp_pool == "recent"

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
        is_hub = self.backbone.startswith(HUB_PREFIX)
        return self.backbone.removeprefix(HUB_PREFIX) if is_hub else ""

    @property
    def shorter_side(self) -> int:
        """Shorter side, in pixels, from which the crop is cut."""
        return self.resize or round(self.crop_size * RESIZE_OVER_CROP)


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


def _changed(arguments, changes, owner):
    """Returns arguments of a class with some, or all, of them changed."""
    if isinstance(changes, Arguments):
        return changes
    for name in changes.keys() - vars(arguments).keys():
        raise ValueError(
            f"Arguments of {owner} must be among "
            f"{', '.join(vars(arguments)) or 'none'}. Received: {name}."
        )
    # A list cannot be hashed.
    hashable = {k: tuple(v) for k, v in changes.items() if type(v) is list}
    return replace(arguments, **{**changes, **hashable})


def _choices():
    # Keras takes seconds to import: not for a --help without a recipe.
    from training.recipes import choices

    return choices


def _conflicts(r: Recipe) -> Iterator[tuple[str, str]]:
    """Yields each setting in conflict with another, and what it must be."""
    for name, datasets in (
        ("train_classes", OWN_SPLITS),
        ("decisions", OWN_SPLITS),
        ("images_per_class", ("collage",)),
        ("canvas_size", ("glyphs", "collage")),
    ):
        if getattr(r, name) is not None and r.dataset not in datasets:
            yield name, f"None with dataset={r.dataset}"
    if not r.distractors and r.dataset not in ("glyphs", "collage"):
        yield "distractors", f"True with dataset={r.dataset}"
    if r.resize is not None and r.resize < (r.crop_size or math.inf):
        yield "resize", f"None or at least crop_size={r.crop_size}"
    is_random = r.augmentation != "none"
    is_whole = r.crop_size is None
    if r.cache_images and (is_random or is_whole or r.cache_features):
        yield (
            "cache_images",
            "False unless augmentation=none, with a crop_size and without "
            "cache_features",
        )
    if r.cache_features and (is_random or r.frozen != "all"):
        yield "cache_features", "False unless frozen=all and augmentation=none"
    if r.backbone not in BACKBONES and not r.hub_preset:
        words = ", ".join(BACKBONES)
        yield "backbone", f"one of {words}, or {HUB_PREFIX}PRESET"
    is_glyph_network = r.backbone.startswith("glyph-cnn")
    if r.backbone_weights == "characters" and not is_glyph_network:
        yield "backbone_weights", f"another one with backbone={r.backbone}"
    if r.lora_rank is not None and (r.cache_features or not r.steps):
        yield "lora_rank", "None with cache_features or steps=0"
    if r.whitening != "none" and r.steps:
        yield "whitening", "none unless steps=0, for the backbone's features"
    yield from _batch_conflicts(r)
    yield from _method_conflicts(r)
    if r.memory != "none":
        yield from _memory_conflicts(r)
    if r.ccp != "off":
        yield from _ccp_conflicts(r)


def _batch_conflicts(r):
    if r.regularizer != "none" and r.classes_per_batch < 2:
        yield "classes_per_batch", f"2 or more with regularizer={r.regularizer}"
    if r.uses_pairs and r.samples_per_class < 2:
        yield "samples_per_class", f"2 or more with loss={r.loss}, of pairs"
    if r.batch_size % r.batch_chunks:
        yield "batch_chunks", f"a divisor of the batch of {r.batch_size}"
    if r.steps % r.interval:
        every = f"steps_per_evaluation={r.steps_per_evaluation}"
        yield "steps", f"a multiple of {every}, or below it"
    if r.steps and r.warmup_steps >= r.steps:
        yield (
            "warmup_steps",
            f"below steps={r.steps}, or the backbone never learns; "
            "frozen=all keeps it as it is",
        )
    if r.validation_fold >= r.validation_folds:
        folds = f"validation_folds={r.validation_folds}"
        yield "validation_fold", f"in [0, {folds})"


def _method_conflicts(r):
    choices = _choices()
    of_pairs = r.uses_pairs and not choices.is_list_loss(r.loss)
    if r.miner != "none" and not of_pairs:
        yield "miner", f"none with loss={r.loss}"
    if r.teacher is not None:
        is_plain = (r.regularizer, r.memory, r.ccp) == ("none", "none", "off")
        if not (is_plain and r.uses_pairs and r.matryoshka_size is None):
            yield (
                "teacher",
                "None with a proxy loss, a regularizer, a memory, ccp or a "
                "matryoshka_size",
            )
        if r.cache_features or not r.steps:
            yield "teacher", "None with cache_features or steps=0"
    elif r.distillation != "regression":
        yield "distillation", "regression, its default, without a teacher"
    if r.matryoshka_size is not None:
        is_half = r.matryoshka_sizes[-1] == r.matryoshka_size
        if not is_half or len(r.matryoshka_sizes) == 1 or not r.steps:
            yield (
                "matryoshka_size",
                f"embedding_size={r.embedding_size} halved once or more, or "
                "None with steps=0",
            )
        if not (r.uses_pairs or r.uses_proxy_loss):
            yield "matryoshka_size", f"None with loss={r.loss}"
    is_alone = r.ccp == "off" and r.memory == "none"
    if r.in_batch_weight is not None and (is_alone or not r.uses_pairs):
        yield "in_batch_weight", "None without a pair loss beside ccp or memory"
    if r.regularizer == "none":
        if r.log_regularizer_share:
            yield "log_regularizer_share", "False with regularizer=none"
    elif choices.is_gsp(r.pooling):
        default = Method.histogram_inverse_temperature
        if r.histogram_inverse_temperature != default:
            yield (
                "histogram_inverse_temperature",
                f"{default:g}, its default, with pooling={r.pooling}: "
                f"regularizer={r.regularizer} takes the pooling's own "
                "histogram. Set inverse_temperature",
            )
    if not r.uses_pairs and r.ccp_warmup:
        yield "ccp_warmup", f"0 with loss={r.loss}"


def _memory_conflicts(r):
    if not r.uses_pairs:
        yield "memory", f"none with loss={r.loss}"
    if r.ccp != "off":
        yield "memory", f"none with ccp={r.ccp}"
    if r.memory_capacity < r.batch_size:
        yield "memory_capacity", f"at least the batch of {r.batch_size}"
    if r.steps and r.memory_warmup_steps >= r.steps:
        yield (
            "memory_warmup_steps",
            f"below steps={r.steps}, or the memory is never used",
        )


def _ccp_conflicts(r):
    if not (r.uses_pairs or r.uses_proxy_loss):
        yield "ccp", f"off with loss={r.loss}, which has no proxies"
    if r.samples_proxies and r.ccp_pool_size < r.proxies_per_class:
        proxies = f"proxies_per_class={r.proxies_per_class}"
        yield "ccp_pool_size", f"{proxies} or more, to choose them from"
    if r.ccp == "learned" and r.uses_proxy_loss:
        yield "ccp", f"another one with loss={r.loss}, which learns its proxies"
    if r.ccp == "single":
        if r.steps and r.ccp_warmup >= r.evaluations:
            yield (
                "ccp_warmup",
                f"below the {r.evaluations} evaluations, or no proxy is ever "
                "sampled",
            )
        if r.ccp_pool != "data":
            yield "ccp_pool", "data with ccp=single: none is recent then"
    if r.ccp == "on":
        # One evaluation of a problem that improves, `ccp_patience` that do
        # not, and one of the second problem.
        fewest = r.ccp_warmup + r.ccp_patience + 2
        if r.evaluations < fewest:
            yield (
                "ccp",
                f"single with {r.evaluations} evaluations: no second problem "
                f"begins in fewer than {fewest} (ccp_warmup + ccp_patience + "
                "2). Evaluate more often, train longer or lower ccp_patience",
            )
        if r.patience is not None and r.patience <= r.ccp_patience:
            yield (
                "patience",
                f"above ccp_patience={r.ccp_patience} with ccp=on, or "
                "training stops when the second problem begins",
            )
