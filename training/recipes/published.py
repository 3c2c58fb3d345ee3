"""The papers' settings as data, each with where it stands.

GSP, CCP and XML are the papers, with their supplements; the thesis holds the
first two again. "code" is the papers' public reference code, for what they
leave open. C2's, the triplet loss's and SoftTriple's constants are the optima
of "A Metric Learning Reality Check". The papers' results are in
`training/research/published.csv`.

Where a recipe differs from print:

- Adam's second moment decays with 0.999, as in the code, for 0.99.
- SoftTriple's gamma is printed in two ways, 0.1 and 19.18 or 47.9, of which
  the latter are inverses (of a temperature) and stand here as such.
- CCP keeps a tenth of the loss within the batch, as its code does.
- CCP's models are trained three times each, so that their differences from
  the baseline's are paired. CCP, supplement A.2, trains each once; the thesis
  (table 5.1) prints it with deviations, as GSP's.
- The conventional protocol has the code's margins of C2 and the triplet loss
  and the code's sizes of the memory.

Where print leaves a choice: no paper trains a proxy loss in the conventional
protocol. Its section, GSP 1.1.4, names batches and rates by data set for
every loss, and they hold for proxy losses too: 4 images of a class, and 1e-4
for ProxyAnchor on SOP, whose 5e-6 (1.1.7) goes with batches of single images
and halves the fair protocol's rate.

The code cuts crops by area, 0.16 to 1 of an image (`mlrc-area`); the papers
print sides of 40 to 256 pixels, and so it stands here (`mlrc`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.recipes.recipe import PROXY_LOSSES, Recipe

SMALL = ("cub", "cars")
LARGE = ("sop", "inshop")
DATASETS = SMALL + LARGE


@dataclass(frozen=True)
class Setting:
    """Values of recipe fields, and where they are printed.

    Args:
        values: Recipe field -> value.
        source: Paper and section, or file of the reference code where the
            papers leave the choice open.
        datasets: The data sets for which it holds.
    """

    values: dict[str, Any]
    source: str
    datasets: tuple[str, ...] = DATASETS


_GSP_LOSSES = "GSP, supplement 1.1.7; thesis 5.3.4.1"
_CCP_LOSSES = "CCP, supplement A.2; thesis 3.3.2.1"


def per_dataset(
    names: Sequence[str], source: str, **values: Sequence[Any]
) -> tuple[Setting, ...]:
    """One setting for each data set.

    Args:
        names: Recipe fields.
        source: Where the values are printed.
        **values: Data set -> a value for each field.
    """
    return tuple(
        Setting(dict(zip(names, row, strict=True)), source, (dataset,))
        for dataset, row in values.items()
    )


# A batch of one image of each class, the embedding alone in the first epoch
# (of three quarters of the training images), proxies at 100 times the rate.
PROXY_TRAINING = (
    Setting(
        {
            "classes_per_batch": 32,
            "samples_per_class": 1,
            "proxy_learning_rate_multiplier": 100.0,
        },
        _GSP_LOSSES,
    ),
    *per_dataset(
        ("warmup_steps",),
        _GSP_LOSSES,
        cub=(137,),
        cars=(189,),
        sop=(1396,),
        inshop=(607,),
    ),
)
# Of a loss the numbers alone, without how it is trained.
CONSTANTS = {
    "c1": (Setting({"cosine_margin": 0.5}, _GSP_LOSSES),),
    "c2": per_dataset(
        ("positive_margin", "negative_margin"),
        _GSP_LOSSES,
        cub=(0.0, 0.3841),
        cars=(0.2652, 0.5409),
        sop=(0.2858, 0.5130),
        inshop=(0.2858, 0.5130),
    ),
    "triplet": per_dataset(
        ("triplet_margin",),
        _GSP_LOSSES,
        cub=(0.0961,),
        cars=(0.1190,),
        sop=(0.0451,),
        inshop=(0.0451,),
    ),
    "ms": per_dataset(
        ("ms_alpha", "ms_beta", "ms_base"),
        _GSP_LOSSES,
        cub=(2.0, 40.0, 0.5),
        cars=(14.35, 75.83, 0.66),
        sop=(2.0, 40.0, 0.5),
        inshop=(8.49, 57.38, 0.41),
    ),
    "proxy-anchor": (
        Setting({"anchor_margin": 0.1, "anchor_alpha": 32.0}, _GSP_LOSSES),
    ),
    # 0.1 in CCP, supplement A.2.
    "proxy-nca": (Setting({"proxy_temperature": 0.11}, _GSP_LOSSES),),
    "soft-triple": per_dataset(
        (
            "soft_triple_scale",
            "soft_triple_gamma",
            "soft_triple_tau",
            "soft_triple_margin",
        ),
        _CCP_LOSSES,
        cub=(20.0, 0.1, 0.2, 0.01),
        cars=(17.69, 1 / 19.18, 0.0669, 0.3588),
        sop=(100.0, 1 / 47.9, 0.2, 0.3145),
        inshop=(20.0, 0.1, 0.2, 0.01),
    ),
}
LOSSES: dict[Any, tuple[Setting, ...]] = {
    **{loss: CONSTANTS[loss] for loss in ("c1", "c2", "triplet", "ms")},
    "proxy-anchor": (
        *CONSTANTS["proxy-anchor"],
        *PROXY_TRAINING,
        Setting({"learning_rate": 5e-6}, _GSP_LOSSES, ("sop",)),
    ),
    "proxy-nca": (*CONSTANTS["proxy-nca"], *PROXY_TRAINING),
    # "L": many centers of a class; "S" is one.
    "soft-triple": (
        *CONSTANTS["soft-triple"],
        *PROXY_TRAINING,
        *per_dataset(
            ("proxies_per_class",),
            "CCP, section 5.3",
            cub=(10,),
            cars=(10,),
            sop=(4,),
            inshop=(4,),
        ),
    ),
}


_GSP_TRAINING = "GSP, supplement 1.1.4; thesis 5.3.4.1"
_CCP_TRAINING = "CCP, supplement A.2"

SHARED = (
    Setting(
        {"backbone": "bn-inception", "embedding_size": 128},
        "GSP, section 5.2.1; CCP, section 5.1",
    ),
    Setting(
        {
            "optimizer": "adam",
            "learning_rate": 1e-5,
            "weight_decay": 1e-4,
            "classes_per_batch": 8,
            "samples_per_class": 4,
        },
        f"{_GSP_TRAINING}; {_CCP_TRAINING}",
    ),
    Setting({"clip_norm": 10.0}, "CCP code, framework/configs/default.py"),
    Setting(
        {"frozen": "batch-norm"},
        "A Metric Learning Reality Check, section 4",
    ),
    Setting(
        {"augmentation": "mlrc", "crop_size": 227},
        "GSP, supplement 1.1.1; CCP, supplement A.2; thesis 5.3.4.1",
    ),
    Setting({"protocol": "fair", "repeats": 3}, _GSP_TRAINING),
    Setting(
        {"steps_per_evaluation": 100, "patience": 15, "steps": 1_000_000},
        _GSP_TRAINING,
        SMALL,
    ),
    Setting(
        {"steps_per_evaluation": 1000, "patience": 10, "steps": 10_000_000},
        _GSP_TRAINING,
        LARGE,
    ),
)

_PROTOTYPES = (
    Setting({"num_prototypes": 64}, "GSP, 1.1.7; XML, section 3.1", SMALL),
    Setting({"num_prototypes": 128}, "GSP, 1.1.7; XML, section 3.1", LARGE),
)
_GSP = (
    Setting(
        {"transport_ratio": 0.3, "inverse_temperature": 5.0},
        "GSP, section 4.4 and supplement 1.1.7",
    ),
    *_PROTOTYPES,
)
# Softer with proxies, which need every feature's gradient.
_GSP_PROXIES = Setting(
    {"inverse_temperature": 0.5}, "GSP, section 4.4 and supplement 1.1.7"
)
_ZSR = Setting(
    {"regularizer_weight": 0.1, "ridge": 0.05},
    "GSP, section 4.4 and supplement 1.1.7",
)
_XML = (
    Setting(
        {
            "regularizer_weight": 0.01,
            "ridge": 0.05,
            "histogram_inverse_temperature": 10.0,
        },
        "XML, section 3.1",
    ),
    *_PROTOTYPES,
)
_XBM = (
    Setting(
        {"memory_warmup_steps": 1000},
        "GSP, supplement 1.1.7; CCP, supplement A.2",
    ),
    Setting({"in_batch_weight": 1.0}, "GSP code, dml_small.yaml"),
)
# Batches of 32 in the memory: as many as CCP has proxies of a class.
_XBM_S = per_dataset(
    ("memory_capacity",),
    "CCP, supplement A.2",
    cub=(3 * 32,),
    cars=(3 * 32,),
    sop=(400 * 32,),
    inshop=(100 * 32,),
)
_XBM_L = per_dataset(
    ("memory_capacity",),
    "GSP, supplement 1.1.7; CCP, supplement A.2",
    cub=(25 * 32,),
    cars=(25 * 32,),
    sop=(1400 * 32,),
    inshop=(400 * 32,),
)
_CCP = (
    Setting({"normalization": "ball"}, "CCP, section 4.4"),
    Setting({"anchor_weight": 2e-4}, "CCP, section 5.1 and supplement A.2"),
    Setting({"ccp_patience": 3}, "CCP, section 4.4"),
    # "no warm-up" and no "learning rate multiplier for the proxies".
    Setting(
        {"proxy_learning_rate_multiplier": 1.0, "ccp_warmup": 0},
        "CCP, supplement A.2",
    ),
    # 0 in the paper.
    Setting({"in_batch_weight": 0.1}, "CCP code, losses/ccp/loss.py"),
    Setting({"ccp_pool_size": 12}, "CCP, section 5.1", SMALL),
    Setting({"ccp_pool_size": 7}, "CCP, section 5.1", LARGE),
    Setting({"steps_per_evaluation": 25, "patience": 60}, _CCP_TRAINING, SMALL),
    Setting(
        {"steps_per_evaluation": 250, "patience": 60}, _CCP_TRAINING, LARGE
    ),
)
_CCP_S = (Setting({"proxies_per_class": 1}, "CCP, section 5.3"),)
_CCP_L = (
    Setting({"proxies_per_class": 8}, "CCP, sections 5.1 and 5.3", SMALL),
    Setting({"proxies_per_class": 4}, "CCP, sections 5.1 and 5.3", LARGE),
)

# Word -> what it switches on, and its settings.
METHODS: dict[str, tuple[dict[str, Any], tuple[Setting, ...]]] = {
    "gap": ({}, ()),
    "gsp": ({"pooling": "gsp"}, _GSP),
    "gsp-zsr": ({"pooling": "gsp", "regularizer": "zsr"}, (*_GSP, _ZSR)),
    "xml": ({"regularizer": "xml"}, _XML),
    "ccp": ({"ccp": "on"}, (*_CCP, *_CCP_L)),
    "ccp-s": ({"ccp": "on"}, (*_CCP, *_CCP_S)),
    # Printed as C1+CCP+GSP (thesis, table 5.1), where GSP is with ZSR.
    "ccp-gsp-zsr": (
        {"ccp": "on", "pooling": "gsp", "regularizer": "zsr"},
        (*_CCP, *_CCP_L, *_GSP, _ZSR),
    ),
    "xbm": ({"memory": "xbm", "loss": "c1"}, (*_XBM, *_XBM_L)),
    "xbm-s": ({"memory": "xbm", "loss": "c1"}, (*_XBM, *_XBM_S)),
    "xbm-gsp-zsr": (
        {
            "pooling": "gsp",
            "regularizer": "zsr",
            "memory": "xbm",
            "loss": "c1",
        },
        (*_GSP, _ZSR, *_XBM, *_XBM_L),
    ),
}

CONVENTIONAL = (
    Setting(
        {
            "protocol": "conventional",
            "chosen_by": "precision_at_1",
            "schedule": "plateau",
            "plateau_patience": 4,
            "repeats": 3,
            "samples_per_class": 4,
        },
        _GSP_TRAINING,
    ),
    Setting({"embedding_size": 512}, "GSP, supplement 1.1.5; thesis 3.3.2.1"),
    Setting(
        {"plateau_factor": 0.5}, "GSP code, conventional_resnet50_default.yaml"
    ),
    *per_dataset(
        ("learning_rate",),
        _GSP_TRAINING,
        cub=(1e-5,),
        cars=(1e-4,),
        sop=(1e-4,),
        inshop=(1e-4,),
    ),
    Setting(
        {"positive_margin": 0.0, "negative_margin": 1.0, "triplet_margin": 0.2},
        "GSP code, conventional_bninception_default.yaml",
    ),
    Setting({"steps_per_evaluation": 25, "patience": 15}, _GSP_TRAINING, SMALL),
    Setting(
        {"steps_per_evaluation": 250, "patience": 10}, _GSP_TRAINING, LARGE
    ),
    Setting({"memory_capacity": 50 * 128}, "GSP code, bninception", SMALL),
    Setting({"memory_capacity": 1400 * 128}, "GSP code, bninception", LARGE),
)
# "we use global max pooling as well as global average pooling".
_WITH_MAX = "GSP, supplement 1.3; thesis 5.3.4.2"
CONVENTIONAL_POOLINGS = {
    "gap": Setting({"pooling": "gap-gmp"}, _WITH_MAX),
    "gsp": Setting({"pooling": "gmp-gsp"}, _WITH_MAX),
}
BACKBONES = {
    "bn-inception": Setting(
        {
            "backbone": "bn-inception",
            "classes_per_batch": 32,
            "weight_decay": 1e-4,
        },
        _GSP_TRAINING,
    ),
    "resnet50": Setting(
        {
            "backbone": "resnet50",
            "classes_per_batch": 28,
            "weight_decay": 4e-4,
        },
        _GSP_TRAINING,
    ),
}
# Images to learn from. A warm-up is one epoch (GSP, supplement 1.1.7), here
# of all of them.
TRAINING_IMAGES = {"cub": 5_864, "cars": 8_054, "sop": 59_551, "inshop": 25_882}


def published_recipe(
    dataset: str,
    method: str = "gap",
    loss: str | None = None,
    protocol: str = "fair",
    backbone: str = "bn-inception",
) -> Recipe:
    """The published settings of one cell of a table.

    Args:
        dataset: `cub`, `cars`, `sop` or `inshop`.
        method: One of `METHODS`.
        loss: One of `LOSSES`; the method's own (`c1` with a memory), else
            `c2`.
        protocol: `fair` or `conventional`.
        backbone: `bn-inception`; in the conventional protocol also
            `resnet50`.

    Returns:
        The recipe. It has no weights file: the papers start from ImageNet
        weights, to be named as `backbone_weights`.

    Raises:
        ValueError: `xbm-s` in the conventional protocol, where no size of a
            small memory is printed.
    """
    if method == "xbm-s" and protocol == "conventional":
        raise ValueError(
            "`protocol` must be fair with method=xbm-s: the conventional "
            "protocol has one size of the memory, that of xbm. "
            f"Received: protocol={protocol}."
        )
    switches, settings = METHODS[method]
    loss = loss or switches.get("loss", "c2")
    if switches.get("pooling") == "gsp" and loss in PROXY_LOSSES:
        settings = (*settings, _GSP_PROXIES)
    conventional: tuple[Setting, ...] = ()
    if protocol == "conventional":
        conventional = (*CONVENTIONAL, BACKBONES[backbone])
    values = _values(
        (*SHARED, *LOSSES[loss], *settings, *conventional), dataset
    )
    values |= switches
    if conventional:
        pooling = CONVENTIONAL_POOLINGS[switches.get("pooling", "gap")]
        values |= pooling.values
    if conventional and loss in PROXY_LOSSES:
        batch_size = values["classes_per_batch"] * values["samples_per_class"]
        values["warmup_steps"] = round(TRAINING_IMAGES[dataset] / batch_size)
    return Recipe(**{**values, "dataset": dataset, "loss": loss})


def base_recipe(dataset: str, protocol: str = "fair") -> Recipe:
    """Every method's settings at once, none of them switched on.

    What `python -m training.train cub --loss ms --pooling gsp` starts from.
    What a method or a loss changes in the training itself (batches, warm-up,
    normalization, evaluations) comes with its own recipe alone, where it does
    not disturb the others.

    Args:
        dataset: As for `published_recipe`.
        protocol: As for `published_recipe`.
    """
    losses = [s for word, s in CONSTANTS.items() if word != "soft-triple"]
    rate = Setting({"proxy_learning_rate_multiplier": 100.0}, "GSP, 1.1.7")
    memory = [s for s in (*_XBM, *_XBM_L) if "in_batch_weight" not in s.values]
    conventional: tuple[Setting, ...] = ()
    if protocol == "conventional":
        conventional = (
            *CONVENTIONAL,
            BACKBONES["bn-inception"],
            CONVENTIONAL_POOLINGS["gap"],
        )
    chosen = [SHARED, *losses, (rate,), _GSP, memory, conventional]
    values = _values([s for part in chosen for s in part], dataset)
    return Recipe(**{"dataset": dataset, **values})


def _values(settings, dataset):
    return {
        name: value
        for setting in settings
        if dataset in setting.datasets
        for name, value in setting.values.items()
    }


RECIPES = {}
for _dataset in SMALL + LARGE:
    RECIPES[_dataset] = base_recipe(_dataset)
    RECIPES[f"{_dataset}-conventional"] = base_recipe(_dataset, "conventional")
    RECIPES[f"{_dataset}-conventional-resnet50"] = published_recipe(
        _dataset, protocol="conventional", backbone="resnet50"
    )
    for _method in METHODS:
        if _method != "gap":
            RECIPES[f"{_dataset}-{_method}"] = published_recipe(
                _dataset, _method
            )
