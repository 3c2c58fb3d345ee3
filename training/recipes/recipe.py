"""A recipe: every setting that defines a training run."""

import difflib
from collections.abc import Mapping
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
    *("glyph-cnn", "mobilenet-v2", "resnet20"),
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

    Args:
        data: Images, and how they are cropped.
        encoder: Backbone, pooling and embedding.
        objective: The loss.
        method: Regularizer, memory, sampled proxies.
        optimization: Batches, steps, rates.
        evaluation: Validation, and the choice of the weights.

    Raises:
        ValueError: a setting out of its range, or settings that contradict
            each other.

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
        # Keras takes seconds to import: not for a --help without a recipe.
        from training.recipes.choices import (
            loss_arguments,
            losses,
            pooling_arguments,
            poolings,
        )

        for group in GROUPS:
            check_fields(getattr(self, group))
        check_word("loss", self.loss, losses())
        check_word("pooling", self.pooling, poolings())
        # A loss or a pooling without arguments has those of its class.
        self._complete("objective", "loss", loss_arguments(self.loss)())
        self._complete("encoder", "pooling", pooling_arguments(self.pooling))
        _check_data(self)
        _check_encoder(self)
        _check_optimization(self)
        _check_method(self)
        _check_ccp(self)
        _check_arguments(self)

    def __getattr__(self, name: str) -> Any:
        group = GROUP_OF.get(name)
        if group is None:
            raise AttributeError(f"A recipe has no setting {name}.")
        return getattr(self.__dict__[group], name)

    def with_(self, **settings: Any) -> "Recipe":
        """Returns a copy with other settings.

        Args:
            **settings: Setting -> value. `loss_arguments` and
                `pooling_arguments` change the named arguments; with another
                loss or pooling all others are its class's defaults.

        Raises:
            ValueError: an unknown setting, or one out of its range.
        """
        from training.recipes.choices import (
            loss_arguments,
            losses,
            pooling_arguments,
            poolings,
        )

        for name in settings:
            if name not in GROUP_OF:
                similar = difflib.get_close_matches(name, GROUP_OF, n=3)
                raise ValueError(
                    "A setting must be one of a recipe's. Received: "
                    f"{name}. Similar: {', '.join(similar)}."
                )
        loss = settings.get("loss", self.loss)
        check_word("loss", loss, losses())
        pooling = settings.get("pooling", self.pooling)
        check_word("pooling", pooling, poolings())
        own = {
            "loss_arguments": (
                self.loss_arguments
                if loss == self.loss
                else loss_arguments(loss)()
            ),
            "pooling_arguments": (
                self.pooling_arguments
                if pooling == self.pooling
                else pooling_arguments(pooling)
            ),
        }
        for name, word in (
            ("loss_arguments", loss),
            ("pooling_arguments", pooling),
        ):
            given = settings.get(name, {})
            settings[name] = with_arguments(own[name], given, word)
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

        Raises:
            ValueError: the settings were written by another version.
        """
        unknown = settings.keys() ^ GROUP_OF.keys()
        if unknown:
            raise ValueError(
                "A run's recipe must have the settings of this version. "
                f"Received: {', '.join(sorted(unknown))} unknown or missing. "
                "Train the run again, or check out the commit that its "
                "settings.json names."
            )
        return cls.of(**settings)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, as `settings.json` has them."""
        return {
            name: asdict(value) if name.endswith("_arguments") else value
            for group in GROUPS
            for name, value in vars(getattr(self, group)).items()
        }

    @property
    def uses_pairs(self) -> bool:
        """Whether the loss compares samples with each other."""
        from training.recipes.choices import is_pair_loss

        return is_pair_loss(self.loss)

    @property
    def uses_proxy_loss(self) -> bool:
        """Whether the loss compares samples with proxies only."""
        from training.recipes.choices import is_proxy_loss

        return is_proxy_loss(self.loss)

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

    def _complete(self, group, word, arguments):
        name = f"{word}_arguments"
        given = getattr(self, name)
        if type(given) is not type(arguments):
            one = replace(getattr(self, group), **{name: arguments})
            object.__setattr__(self, group, one)


def _check_data(recipe):
    for name, datasets in (
        ("train_classes", OWN_SPLITS),
        ("images_per_class", CANVASES),
        ("canvas_size", CANVASES),
    ):
        is_met = getattr(recipe, name) is None or recipe.dataset in datasets
        needed = f"None with dataset={recipe.dataset}"
        require(recipe, name, is_met, needed)
    crop = recipe.crop_size
    require(
        recipe,
        "resize",
        recipe.resize is None or (crop is not None and recipe.resize >= crop),
        f"None or at least crop_size={crop}",
    )
    require(
        recipe,
        "cache_images",
        not recipe.cache_images
        or (
            recipe.augmentation == "none"
            and crop is not None
            and not recipe.cache_features
        ),
        "False unless augmentation=none, with a crop_size and without "
        "cache_features",
    )


def _check_encoder(recipe):
    is_hub = recipe.backbone.startswith(HUB_PREFIX)
    require(
        recipe,
        "backbone",
        recipe.backbone in BACKBONES or (is_hub and recipe.backbone[4:]),
        f"one of {', '.join(BACKBONES)}, or {HUB_PREFIX}PRESET",
    )
    require(
        recipe,
        "cache_features",
        not recipe.cache_features
        or (recipe.frozen == "all" and recipe.augmentation == "none"),
        "False unless frozen=all and augmentation=none",
    )


def _check_optimization(recipe):
    require(
        recipe,
        "classes_per_batch",
        recipe.regularizer == "none" or recipe.classes_per_batch > 1,
        f"2 or more with regularizer={recipe.regularizer}",
    )
    require(
        recipe,
        "samples_per_class",
        recipe.samples_per_class > 1 or not recipe.uses_pairs,
        f"2 or more with loss={recipe.loss}, which learns from pairs",
    )
    require(
        recipe,
        "batch_chunks",
        recipe.batch_size % recipe.batch_chunks == 0,
        f"a divisor of the batch of {recipe.batch_size}",
    )
    require(
        recipe,
        "steps",
        recipe.steps % recipe.interval == 0,
        f"a multiple of steps_per_evaluation={recipe.steps_per_evaluation}, "
        "or below it",
    )
    require(
        recipe,
        "warmup_steps",
        recipe.steps == 0 or recipe.warmup_steps < recipe.steps,
        f"below steps={recipe.steps}, or the backbone never learns. Train "
        "longer or lower it; frozen=all keeps it as it is",
    )
    require(
        recipe,
        "validation_fold",
        recipe.validation_fold < recipe.validation_folds,
        f"in [0, validation_folds={recipe.validation_folds})",
    )


def _check_method(recipe):
    """Checks the loss against miner, regularizer and memory."""
    from training.recipes.choices import is_gsp, is_list_loss

    require(
        recipe,
        "miner",
        recipe.miner == "none"
        or (recipe.uses_pairs and not is_list_loss(recipe.loss)),
        f"none with loss={recipe.loss}",
    )
    require(
        recipe,
        "memory",
        recipe.memory == "none" or recipe.uses_pairs,
        f"none with loss={recipe.loss}",
    )
    require(
        recipe,
        "memory",
        recipe.memory == "none" or recipe.ccp == "off",
        f"none with ccp={recipe.ccp}",
    )
    require(
        recipe,
        "memory_capacity",
        recipe.memory == "none" or recipe.memory_capacity >= recipe.batch_size,
        f"{recipe.batch_size} or more, a batch of classes_per_batch * "
        "samples_per_class. Raise it or make the batch smaller",
    )
    require(
        recipe,
        "memory_warmup_steps",
        recipe.memory == "none"
        or recipe.steps == 0
        or recipe.memory_warmup_steps < recipe.steps,
        f"below steps={recipe.steps}, or the memory is never used. Train "
        "longer or lower it",
    )
    has_references = recipe.ccp != "off" or recipe.memory != "none"
    require(
        recipe,
        "in_batch_weight",
        recipe.in_batch_weight is None
        or (recipe.uses_pairs and has_references),
        "None without a pair loss beside ccp or a memory",
    )
    default = Method.histogram_inverse_temperature
    require(
        recipe,
        "histogram_inverse_temperature",
        recipe.regularizer == "none"
        or not is_gsp(recipe.pooling)
        or recipe.histogram_inverse_temperature == default,
        f"{default:g}, its default, with pooling={recipe.pooling}, whose own "
        f"histogram regularizer={recipe.regularizer} takes. Set "
        "inverse_temperature",
    )
    require(
        recipe,
        "log_regularizer_share",
        not recipe.log_regularizer_share or recipe.regularizer != "none",
        "False with regularizer=none",
    )


def _check_ccp(recipe):
    """Checks chance constrained programming against loss and budget."""
    uses_pairs, is_proxy = recipe.uses_pairs, recipe.uses_proxy_loss
    require(
        recipe,
        "ccp",
        recipe.ccp == "off" or uses_pairs or is_proxy,
        f"off with loss={recipe.loss}, which has no proxies",
    )
    require(
        recipe,
        "ccp",
        not (is_proxy and recipe.ccp == "learned"),
        f"off, single or on with loss={recipe.loss}, which learns its proxies",
    )
    require(
        recipe,
        "ccp_warmup",
        uses_pairs or recipe.ccp_warmup == 0,
        f"0 with loss={recipe.loss}",
    )
    require(
        recipe,
        "ccp_warmup",
        recipe.ccp != "single"
        or recipe.steps == 0
        or recipe.ccp_warmup < recipe.evaluations,
        f"below the {recipe.evaluations} evaluations, or no proxy is ever "
        "sampled. Train longer or lower it, or evaluate more often",
    )
    require(
        recipe,
        "ccp_pool",
        recipe.ccp != "single" or recipe.ccp_pool == "data",
        "data with ccp=single, whose only problem has no recent samples. "
        "Set ccp=on to choose proxies from them",
    )
    require(
        recipe,
        "ccp_pool_size",
        not recipe.samples_proxies
        or recipe.ccp_pool_size >= recipe.proxies_per_class,
        f"proxies_per_class={recipe.proxies_per_class} or more, which are "
        "chosen among them. Raise it or take fewer proxies",
    )
    # One evaluation of a problem that improves, `ccp_patience` that do not,
    # and one of the second problem: fewer train one fixed set of proxies.
    needed = recipe.ccp_warmup + recipe.ccp_patience + 2
    require(
        recipe,
        "ccp",
        recipe.ccp != "on" or recipe.evaluations >= needed,
        f"single with {recipe.evaluations} evaluations: no second problem "
        f"begins in fewer than {needed} (ccp_warmup + ccp_patience + 2). "
        "Evaluate more often, train longer or lower ccp_patience",
    )
    require(
        recipe,
        "patience",
        recipe.ccp != "on"
        or recipe.patience is None
        or recipe.patience > recipe.ccp_patience,
        f"above ccp_patience={recipe.ccp_patience} with ccp=on, or training "
        "stops where the second problem would begin",
    )


def _check_arguments(recipe):
    """Lets the classes check their own arguments."""
    from training.recipes.choices import losses, pooling_arguments, poolings

    losses()[recipe.loss](**vars(recipe.loss_arguments))
    own = recipe.pooling_arguments
    if own != pooling_arguments(recipe.pooling):
        poolings()[recipe.pooling](name="pooling", **vars(own))
