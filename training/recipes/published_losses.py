"""What the papers set for each loss, per data set, each with its section.

GSP is the paper of generalized sum pooling with its supplement, CCP that of
alternating proxies; the thesis repeats both. C2's, the triplet loss's and
SoftTriple's constants are the optima of "A Metric Learning Reality Check".

Where a recipe differs: SoftTriple's gamma is printed in two ways, 0.1 and
19.18 or 47.9. The latter are inverses (of a temperature), and stand here as
such.
"""

from collections.abc import Sequence
from typing import Any

from training.recipes.setting import Setting

_GSP = "GSP, supplement 1.1.7; thesis 5.3.4.1"
_CCP = "CCP, supplement A.2; thesis 3.3.2.1"


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
        _GSP,
    ),
    *per_dataset(
        ("warmup_steps",),
        _GSP,
        cub=(137,),
        cars=(189,),
        sop=(1396,),
        inshop=(607,),
    ),
)
# Of a loss the numbers alone, without how it is trained.
CONSTANTS = {
    "c1": (Setting({"cosine_margin": 0.5}, _GSP),),
    "c2": per_dataset(
        ("positive_margin", "negative_margin"),
        _GSP,
        cub=(0.0, 0.3841),
        cars=(0.2652, 0.5409),
        sop=(0.2858, 0.5130),
        inshop=(0.2858, 0.5130),
    ),
    "triplet": per_dataset(
        ("triplet_margin",),
        _GSP,
        cub=(0.0961,),
        cars=(0.1190,),
        sop=(0.0451,),
        inshop=(0.0451,),
    ),
    "ms": per_dataset(
        ("ms_alpha", "ms_beta", "ms_base"),
        _GSP,
        cub=(2.0, 40.0, 0.5),
        cars=(14.35, 75.83, 0.66),
        sop=(2.0, 40.0, 0.5),
        inshop=(8.49, 57.38, 0.41),
    ),
    "proxy-anchor": (
        Setting({"anchor_margin": 0.1, "anchor_alpha": 32.0}, _GSP),
    ),
    # 0.1 in CCP, supplement A.2.
    "proxy-nca": (Setting({"proxy_temperature": 0.11}, _GSP),),
    "soft-triple": per_dataset(
        (
            "soft_triple_scale",
            "soft_triple_gamma",
            "soft_triple_tau",
            "soft_triple_margin",
        ),
        _CCP,
        cub=(20.0, 0.1, 0.2, 0.01),
        cars=(17.69, 1 / 19.18, 0.0669, 0.3588),
        sop=(100.0, 1 / 47.9, 0.2, 0.3145),
        inshop=(20.0, 0.1, 0.2, 0.01),
    ),
}
LOSSES = {
    **{loss: CONSTANTS[loss] for loss in ("c1", "c2", "triplet", "ms")},
    "proxy-anchor": (
        *CONSTANTS["proxy-anchor"],
        *PROXY_TRAINING,
        Setting({"learning_rate": 5e-6}, _GSP, ("sop",)),
    ),
    "proxy-nca": (*CONSTANTS["proxy-nca"], *PROXY_TRAINING),
    # "L": many centres of a class; "S" is one.
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
