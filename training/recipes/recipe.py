"""A recipe: every setting that defines a training run."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from training.recipes.arguments import check_word, with_arguments
from training.recipes.settings import (
    GROUPS,
    Data,
    Encoder,
    Evaluation,
    Method,
    Objective,
    Optimization,
    check_fields,
    require,
)

BACKBONES = (
    *("glyph-cnn", "glyph-cnn-local", "glyph-cnn-global"),
    *("mobilenet-v2", "resnet20"),
    *("resnet20-v2", "resnet50", "bn-inception"),
)
# First part of a backbone that is a preset of keras-hub.
HUB_PREFIX = "hub:"
# Data sets without a published split, and those composed of pictures.
OWN_SPLITS = ("folder", "csv")
CANVASES = ("collage", "clutter")
GROUP_OF = {
    field.name: group
    for group, kind in GROUPS.items()
    for field in fields(kind)
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of one training run, in groups.

    Every setting can be read by its own name, as options of the command line
    are spelled: `recipe.learning_rate` is `recipe.optimization.learning_rate`.
    Settings out of range, or in conflict, raise `ValueError`.

    Example:
        recipe = Recipe().with_(loss="ms", loss_arguments={"beta": 10.0})
    """

    data: Data = Data()
    encoder: Encoder = Encoder()
    objective: Objective = Objective()
    method: Method = Method()
    optimization: Optimization = Optimization()
    evaluation: Evaluation = Evaluation()

    def __post_init__(self) -> None:
        choices = _choices()
        for group in GROUPS:
            check_fields(getattr(self, group))
        check_word("loss", self.loss, choices.losses())
        check_word("pooling", self.pooling, choices.poolings())
        # A loss or a pooling without arguments has those of its class.
        own = {
            "loss_arguments": choices.loss_arguments(self.loss),
            "pooling_arguments": choices.pooling_arguments(self.pooling),
        }
        for name, arguments in own.items():
            if type(getattr(self, name)) is not type(arguments):
                group = GROUP_OF[name]
                complete = replace(getattr(self, group), **{name: arguments})
                object.__setattr__(self, group, complete)
        for name, is_met, expectation in RULES:
            require(self, name, is_met(self), expectation.format(self))
        # The classes check their own arguments.
        choices.losses()[self.loss](**vars(self.loss_arguments))
        chosen = self.pooling_arguments
        if chosen != own["pooling_arguments"]:
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
        for name in settings:
            if name not in GROUP_OF:
                similar = difflib.get_close_matches(name, GROUP_OF, n=3)
                raise ValueError(
                    "A setting must be one of a recipe's. Received: "
                    f"{name}. Similar: {', '.join(similar)}."
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
            settings[name] = with_arguments(own, settings.get(name, {}), now)
        changes: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
        for name, value in settings.items():
            changes[GROUP_OF[name]][name] = value
        groups: dict[str, Any] = {
            group: replace(getattr(self, group), **changed)
            for group, changed in changes.items()
        }
        return Recipe(**groups)

    @classmethod
    def of(cls, **settings: Any) -> "Recipe":
        """Returns the default recipe with other settings; see `with_`."""
        return cls().with_(**settings)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Recipe":
        """Returns the recipe that `settings` describes.

        Raises `ValueError` for the settings of another version.
        """
        unknown = settings.keys() ^ GROUP_OF.keys()
        if unknown:
            raise ValueError(
                "A run's recipe must have the settings of this version. "
                f"Received: {len(unknown)} unknown or missing, first "
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
    def ccp_evaluations(self) -> int:
        """Fewest evaluations in which a second problem begins.

        One of a problem that improves, `ccp_patience` that do not, and one of
        the second problem: fewer train one fixed set of proxies.
        """
        return self.ccp_warmup + self.ccp_patience + 2


def _choices():
    # Keras takes seconds to import: not for a --help without a recipe.
    from training.recipes import choices

    return choices


def _is_own(name, datasets):
    """A rule for a setting of some data sets only."""
    return (
        name,
        lambda r: getattr(r, name) is None or r.dataset in datasets,
        "None with dataset={0.dataset}",
    )


# Setting, what must hold, and the end of "`setting` must be ...".
RULES: tuple[tuple[str, Callable[[Recipe], bool], str], ...] = (
    _is_own("train_classes", OWN_SPLITS),
    _is_own("images_per_class", CANVASES),
    _is_own("canvas_size", ("glyphs", *CANVASES)),
    (
        "distractors",
        lambda r: r.distractors or r.dataset in ("glyphs", "collage"),
        "True with dataset={0.dataset}",
    ),
    (
        "resize",
        lambda r: (
            r.resize is None
            or (r.crop_size is not None and r.resize >= r.crop_size)
        ),
        "None or at least crop_size={0.crop_size}",
    ),
    (
        "cache_images",
        lambda r: (
            not r.cache_images
            or (
                r.augmentation == "none"
                and r.crop_size is not None
                and not r.cache_features
            )
        ),
        "False unless augmentation=none, with a crop_size and without "
        "cache_features",
    ),
    (
        "backbone",
        lambda r: (
            r.backbone in BACKBONES
            or (r.backbone.startswith(HUB_PREFIX) and r.backbone != HUB_PREFIX)
        ),
        f"one of {', '.join(BACKBONES)}, or {HUB_PREFIX}PRESET",
    ),
    (
        "backbone_weights",
        lambda r: (
            r.backbone_weights != "characters"
            or r.backbone.startswith("glyph-cnn")
        ),
        "a file, imagenet or None with backbone={0.backbone}",
    ),
    (
        "cache_features",
        lambda r: (
            not r.cache_features
            or (r.frozen == "all" and r.augmentation == "none")
        ),
        "False unless frozen=all and augmentation=none",
    ),
    (
        "whitening",
        lambda r: r.whitening == "none" or r.steps == 0,
        "none unless steps=0: it maps the backbone's own features",
    ),
    (
        "classes_per_batch",
        lambda r: r.regularizer == "none" or r.classes_per_batch > 1,
        "2 or more with regularizer={0.regularizer}",
    ),
    (
        "samples_per_class",
        lambda r: r.samples_per_class > 1 or not r.uses_pairs,
        "2 or more with loss={0.loss}, which learns from pairs",
    ),
    (
        "batch_chunks",
        lambda r: r.batch_size % r.batch_chunks == 0,
        "a divisor of the batch of {0.batch_size}",
    ),
    (
        "steps",
        lambda r: r.steps % r.interval == 0,
        "a multiple of steps_per_evaluation={0.steps_per_evaluation}, or "
        "below it",
    ),
    (
        "warmup_steps",
        lambda r: r.steps == 0 or r.warmup_steps < r.steps,
        "below steps={0.steps}, or the backbone never learns. Train longer "
        "or lower it; frozen=all keeps it as it is",
    ),
    (
        "validation_fold",
        lambda r: r.validation_fold < r.validation_folds,
        "in [0, validation_folds={0.validation_folds})",
    ),
    (
        "miner",
        lambda r: (
            r.miner == "none"
            or (r.uses_pairs and not _choices().is_list_loss(r.loss))
        ),
        "none with loss={0.loss}",
    ),
    (
        "memory",
        lambda r: r.memory == "none" or r.uses_pairs,
        "none with loss={0.loss}",
    ),
    (
        "memory",
        lambda r: r.memory == "none" or r.ccp == "off",
        "none with ccp={0.ccp}",
    ),
    (
        "memory_capacity",
        lambda r: r.memory == "none" or r.memory_capacity >= r.batch_size,
        "{0.batch_size} or more, a batch of classes_per_batch * "
        "samples_per_class. Raise it or make the batch smaller",
    ),
    (
        "memory_warmup_steps",
        lambda r: (
            r.memory == "none"
            or r.steps == 0
            or r.memory_warmup_steps < r.steps
        ),
        "below steps={0.steps}, or the memory is never used. Train longer or "
        "lower it",
    ),
    (
        "in_batch_weight",
        lambda r: (
            r.in_batch_weight is None
            or (r.uses_pairs and (r.ccp != "off" or r.memory != "none"))
        ),
        "None without a pair loss beside ccp or a memory",
    ),
    (
        "histogram_inverse_temperature",
        lambda r: (
            r.regularizer == "none"
            or not _choices().is_gsp(r.pooling)
            or r.histogram_inverse_temperature
            == Method.histogram_inverse_temperature
        ),
        f"{Method.histogram_inverse_temperature:g}, its default, with "
        "pooling={0.pooling}: regularizer={0.regularizer} takes the "
        "pooling's own histogram. Set inverse_temperature",
    ),
    (
        "log_regularizer_share",
        lambda r: not r.log_regularizer_share or r.regularizer != "none",
        "False with regularizer=none",
    ),
    (
        "ccp",
        lambda r: r.ccp == "off" or r.uses_pairs or r.uses_proxy_loss,
        "off with loss={0.loss}, which has no proxies",
    ),
    (
        "ccp",
        lambda r: not (r.uses_proxy_loss and r.ccp == "learned"),
        "off, single or on with loss={0.loss}, which learns its proxies",
    ),
    (
        "ccp_warmup",
        lambda r: r.uses_pairs or r.ccp_warmup == 0,
        "0 with loss={0.loss}",
    ),
    (
        "ccp_warmup",
        lambda r: (
            r.ccp != "single" or r.steps == 0 or r.ccp_warmup < r.evaluations
        ),
        "below the {0.evaluations} evaluations, or no proxy is ever sampled. "
        "Train longer or lower it, or evaluate more often",
    ),
    (
        "ccp_pool",
        lambda r: r.ccp != "single" or r.ccp_pool == "data",
        "data with ccp=single, whose only problem has no recent samples. Set "
        "ccp=on to choose proxies from them",
    ),
    (
        "ccp_pool_size",
        lambda r: (
            not r.samples_proxies or r.ccp_pool_size >= r.proxies_per_class
        ),
        "proxies_per_class={0.proxies_per_class} or more, which are chosen "
        "among them. Raise it or take fewer proxies",
    ),
    (
        "ccp",
        lambda r: r.ccp != "on" or r.evaluations >= r.ccp_evaluations,
        "single with {0.evaluations} evaluations: no second problem begins "
        "in fewer than {0.ccp_evaluations} (ccp_warmup + ccp_patience + 2). "
        "Evaluate more often, train longer or lower ccp_patience",
    ),
    (
        "patience",
        lambda r: (
            r.ccp != "on" or r.patience is None or r.patience > r.ccp_patience
        ),
        "above ccp_patience={0.ccp_patience} with ccp=on, or training stops "
        "when the second problem begins",
    ),
)
