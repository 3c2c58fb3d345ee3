"""Every loss of `gsp.losses` and pooling of `gsp.layers`, by a word.

Exported classes are found automatically: the word is the class's name, or its
short name in papers, listed here.
"""

import inspect
import re
import types
from collections.abc import Sequence
from dataclasses import field, make_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

import docstring_parser
import keras
import tyro

import keras_gsp as gsp
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from training.recipes.settings import Arguments

LOSS_ALIASES = {
    "CosineContrastiveLoss": "c1",
    "ContrastiveLoss": "c2",
    "MultiSimilarityLoss": "ms",
    "SupConLoss": "supcon",
    "NTXentLoss": "ntxent",
    "LiftedStructureLoss": "lifted",
    "ArcFaceLoss": "arcface",
    "CosFaceLoss": "cosface",
    "IntraBatchLoss": "libc",
}
# Bases, and losses that are settings of their own.
KINDS = (
    gsp.losses.MetricLoss,
    gsp.losses.DistillationLoss,
    gsp.losses.Matryoshka,
    gsp.losses.PairLoss,
    gsp.losses.ListLoss,
    gsp.losses.ProxyLoss,
)


POOLING_ALIASES = {
    "GeneralizedSumPooling": "gsp",
    "GeneralizedMeanPooling": "gem",
    "GeneralizedMaxPooling": "gemax",
    "AverageMaxPooling": "gap-gmp",
    "CroWPooling": "crow",
    "GSoPPooling": "gsop",
    "NetVLADPooling": "netvlad",
    "OptimalTransportPooling": "ot-aggregation",
    "SimPooling": "sim-pool",
    "SmoothedMatchKernelPooling": "smk",
}
# Numbers of vectors in the papers' comparison: `few` make up the width of the
# embedding together, `large` have this width each.
FEW, MANY = 8, 64
# Defaults of this project's comparison, and further words for a class.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gem": {"learn_power": True},
    # Its values are the encoder's projection.
    "attention": {"use_value_projection": False},
    # As in the papers' comparison.
    "cbam": {"kernel_size": 3},
    "sim-pool": {"power": 2.0},
    "netvlad": {"num_clusters": FEW},
    "netvlad-large": {"num_clusters": MANY},
    "ot-aggregation": {"num_clusters": FEW},
    "otk": {"num_references": FEW},
    "otk-large": {"num_references": MANY},
    "gem-gsp": {"power": 3.0, "learn_power": True},
    "gmp-gsp": {"add_max": True},
    "gsp-affine": {"use_affine_costs": True},
    "gsp-background": {"prototype_role": "background"},
    "gsp-learned": {"learn_ratio": True},
    "gsp-unary": {"use_unary_costs": True},
}
FORMS = {
    "netvlad-large": "netvlad",
    "otk-large": "otk",
    **{word: "gsp" for word in DEFAULTS if "gsp" in word},
}
DIVIDED = ("netvlad", "ot-aggregation", "otk")
# Poolings that see the backbone's own features in the papers' comparison, and
# SimPooling, which projects what it pooled. The others see projected ones.
POOLED_FIRST = (
    *("gmp", "gem", "gem-gsp", "gap-gmp", "cbam", "crow"),
    *("delf", "gemax", "sim-pool", "smk", "solar"),
)
# Settings of a recipe, because regularizers use them too.
_ELSEWHERE = (
    *("num_prototypes", "transport_ratio", "inverse_temperature"),
    "return_histogram",
)


@cache
def losses() -> dict[str, type]:
    """Maps words to classes, for every loss that `gsp.losses` exports."""
    classes = {name: getattr(gsp.losses, name) for name in gsp.losses.__all__}
    return {
        LOSS_ALIASES.get(name, word_of(name, "Loss")): kind
        for name, kind in classes.items()
        if issubclass(kind, gsp.losses.MetricLoss) and kind not in KINDS
    }


def is_pair_loss(word: str) -> bool:
    """Whether a loss compares samples with each other."""
    return issubclass(losses()[word], gsp.losses.PairLoss)


def is_list_loss(word: str) -> bool:
    """Whether a loss looks at whole rankings."""
    return issubclass(losses()[word], gsp.losses.ListLoss)


def is_proxy_loss(word: str) -> bool:
    """Whether a loss compares samples with proxies only."""
    return issubclass(losses()[word], gsp.losses.ProxyLoss)


def loss_arguments(word: str) -> Arguments:
    """Returns a loss's own arguments with their defaults."""
    # Arguments of every pair loss are settings of a recipe.
    shared = tuple(arguments_of(gsp.losses.PairLoss, "loss").__annotations__)
    return arguments_of(losses()[word], "loss", shared)()


@cache
def poolings() -> dict[str, type]:
    """Maps words to classes, for every pooling of `gsp.layers`."""
    found: dict[str, type] = {
        "gap": keras.layers.GlobalAveragePooling2D,
        "gmp": keras.layers.GlobalMaxPooling2D,
    }
    for name in gsp.layers.__all__:
        kind = getattr(gsp.layers, name)
        if issubclass(kind, FeaturePooling):
            found[POOLING_ALIASES.get(name, word_of(name, "Pooling"))] = kind
    return found | {word: found[other] for word, other in FORMS.items()}


def is_gsp(word: str) -> bool:
    """Whether a pooling has prototypes whose histogram regularizers take."""
    return issubclass(poolings()[word], gsp.layers.GeneralizedSumPooling)


def pooling_arguments(word: str) -> Arguments:
    """Returns a pooling's own arguments with their defaults."""
    kind: Any = poolings()[word]
    if not issubclass(kind, FeaturePooling):
        return Arguments()
    hidden = _ELSEWHERE if is_gsp(word) else ()
    return arguments_of(kind, "pooling", hidden)(**DEFAULTS.get(word, {}))


@cache
def arguments_of(
    kind: Any, prefix: str, hidden: tuple[str, ...] = ()
) -> type[Arguments]:
    """Makes the dataclass of a class's own arguments but the `hidden` ones.

    Numbers, flags and texts are arguments, also in sequences, with the
    defaults of the class; what it passes on as `**kwargs` is not. The class
    checks ranges. Options are named `--PREFIX.NAME`.
    """
    described = docstring_parser.parse(kind.__doc__ or "").params
    help_of = {one.arg_name: one.description for one in described}
    chosen = []
    for name, one in inspect.signature(kind, eval_str=True).parameters.items():
        if name in hidden or not _is_simple(one):
            continue
        option = tyro.conf.arg(
            name=f"{prefix}.{name.replace('_', '-')}",
            help=_first_sentence(help_of.get(name) or ""),
        )
        default = field(default=one.default)
        chosen.append((name, Annotated[one.annotation, option], default))
    return make_dataclass(
        f"{kind.__name__}Arguments",
        chosen,
        bases=(Arguments,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": f"Arguments of {kind.__name__}."},
    )


def word_of(name: str, ending: str) -> str:
    """Turns a class's name into an option's word: `NPairLoss` -> `n-pair`."""
    plain = name.removesuffix(ending)
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", plain)
    return parts.lower()


def _is_simple(parameter):
    """Whether an argument with a default is a number, flag, text or list."""
    annotation = parameter.annotation
    is_union = get_origin(annotation) in (Union, types.UnionType)
    parts = get_args(annotation) if is_union else (annotation,)
    return parameter.default is not parameter.empty and all(
        part in (int, float, bool, str, types.NoneType)
        or get_origin(part) in (Sequence, tuple)
        for part in parts
    )


def _first_sentence(text):
    return re.split(r"\.\s", " ".join(text.split()))[0].rstrip(".") + "."
