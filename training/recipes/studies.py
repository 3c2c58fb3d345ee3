"""Whole tables as data: rows x methods on one data set.

A cell is a recipe; the cells stand in the order in which they are trained,
the most telling first, one seed of all of them before the next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from training.recipes.glyphs import GAP as GLYPHS
from training.recipes.own_images import FEATURES, RECIPES
from training.recipes.pooling_study import POOLINGS, pooling_cells
from training.recipes.published import published_recipe
from training.recipes.published_losses import LOSSES
from training.recipes.recipe import PROXY_LOSSES, Recipe
from training.recipes.setting import LARGE, SMALL

UNTRAINED = ("-", "untrained")
_SHARE = {"log_regularizer_share": True}
METHODS: dict[str, dict[str, Any]] = {
    "gap": {},
    "gsp": {"pooling": "gsp"},
    "gsp-zsr": {"pooling": "gsp", "regularizer": "zsr", **_SHARE},
    "zsr": {"regularizer": "zsr", **_SHARE},
    "xml": {"regularizer": "xml", **_SHARE},
    "xbm": {"memory": "xbm", "in_batch_weight": 1.0},
    "single": {"ccp": "single"},
    "ccp": {"ccp": "on"},
    "ccp-gsp": {"ccp": "on", "pooling": "gsp"},
}
# What a method is compared with: what it adds one thing to.
BASELINES = {
    "gsp": ("gap",),
    "gsp-zsr": ("gap", "gsp"),
    "zsr": ("gap",),
    "xml": ("gap",),
    "xbm": ("gap",),
    "single": ("gap",),
    "ccp": ("gap", "single"),
    "ccp-gsp": ("gap", "ccp"),
    **{word: ("gap",) for word in POOLINGS if word not in ("gap", "gsp")},
}
# Sampled proxies of a pair loss, the same with and without alternation: as
# many and from as many samples as the papers take for many small classes,
# beside the loss within the batch.
SAMPLED = {
    "proxies_per_class": 4,
    "ccp_pool_size": 7,
    # Evaluations; 100 steps of the studies below, 75 in the papers.
    "ccp_patience": 2,
    "in_batch_weight": 1.0,
    "proxy_learning_rate_multiplier": 1.0,
}
SAMPLED_METHODS = ("single", "ccp", "ccp-gsp")
FULL = ("gap", "single", "ccp", "gsp", "xbm", "gsp-zsr", "xml", "ccp-gsp")
SHORT = ("gap", "ccp", "gsp")
PAIRS = ("ms", "c2", "c1")
OTHERS = ("proxy-anchor", "proxy-nca", "soft-triple", "triplet")
# Losses that no table of the papers has.
FURTHER = (
    "arcface",
    "cosface",
    "normalized-softmax",
    "supcon",
    "ntxent",
    "circle",
    "margin",
    "lifted",
    "n-pair",
    "potential-field",
    "smooth-ap",
    "recall-at-k",
)


@dataclass(frozen=True)
class Study:
    """Recipes of a table, by row and column.

    Args:
        title: What stands above the table.
        cells: (row, method) -> recipe, in the order of training; a row is a
            loss, perhaps with what else is changed in it.
    """

    title: str
    cells: Mapping[tuple[str, str], Recipe] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[str, ...]:
        """The table's rows, in order."""
        return tuple(dict.fromkeys(row for row, _ in self.cells))

    @property
    def methods(self) -> tuple[str, ...]:
        """The table's methods, in order."""
        return tuple(dict.fromkeys(method for _, method in self.cells))


def cell(base: Recipe, loss: str, method: str, **settings: Any) -> Recipe:
    """The recipe of a loss with a method.

    Args:
        base: The study's own settings.
        loss: Word of a loss.
        method: One of `METHODS`.
        **settings: What else differs.
    """
    chosen = {**METHODS[method]}
    if method in SAMPLED_METHODS:
        chosen["ccp_patience"] = SAMPLED["ccp_patience"]
    if method in SAMPLED_METHODS and loss not in PROXY_LOSSES:
        chosen = {**SAMPLED, **chosen}
    return replace(base, **{"loss": loss, **chosen, **settings})


def untrained(base: Recipe) -> Recipe:
    """The baseline of every table: raw features, pooled and normalised.

    Pretrained ones are the same for every seed.
    """
    repeats = 1 if base.frozen != "none" else base.repeats
    return replace(base, steps=0, protocol="single", repeats=repeats)


def grid(
    title: str,
    base: Recipe,
    blocks: Iterable[tuple[Iterable[str], Iterable[str]]],
    rows: Mapping[str, dict] | None = None,
    methods: Mapping[str, dict] | None = None,
) -> Study:
    """The untrained baseline, then every row with every method of a block.

    Args:
        title: What stands above the table.
        base: What all cells share.
        blocks: Pairs of rows and methods. A block is trained method by
            method; a cell that an earlier block has is not repeated.
        rows: Row -> its settings with its `loss`; a loss alone is a row too.
        methods: Method -> further settings in this study.
    """
    cells = {UNTRAINED: untrained(base)}
    for names, words in blocks:
        for method in words:
            for row in names:
                own = dict((rows or {}).get(row, {"loss": row}))
                own |= (methods or {}).get(method, {})
                recipe = cell(base, method=method, **own)
                cells.setdefault((row, method), recipe)
    return Study(title, cells)


def _poolings(dataset, base):
    """Every pooling with both losses on one data set, as another study."""
    return Study(
        f"{dataset}, every pooling",
        {UNTRAINED: untrained(base), **pooling_cells(base)},
    )


def _published(dataset):
    """The cells that the papers print, the baselines of all losses first."""
    losses = tuple(LOSSES)
    cells = [(loss, "gap") for loss in losses]
    cells += [(loss, "ccp") for loss in ("c1", "c2", "ms", "triplet")]
    cells += [(loss, "gsp-zsr") for loss in losses if loss != "soft-triple"]
    cells += [("c1", "xbm"), ("c2", "xbm"), ("c2", "xml")]
    cells += [("proxy-anchor", "xml"), ("c2", "gsp"), ("c1", "xbm-gsp-zsr")]
    cells += [("c1", "ccp-gsp"), ("c1", "xbm-s"), ("c2", "xbm-s")]
    return Study(
        f"{dataset}, published settings",
        {
            (loss, method): published_recipe(dataset, method, loss)
            for loss, method in cells
        },
    )


# Many classes with few images each, the regime of Online Products; the
# backbone learns. 96 pixels of the whole drawing, no augmentation.
CENTERS = {"soft-triple": {"loss": "soft-triple", "proxies_per_class": 2}}
EMOJI = replace(
    RECIPES["folder"],
    augmentation="none",
    crop_size=96,
    resize=96,
    cache_images=True,
    negative_margin=0.5130,
    positive_margin=0.2850,
    triplet_margin=0.0451,
    num_prototypes=64,
    steps=1500,
    steps_per_evaluation=50,
    memory_capacity=800,
    memory_warmup_steps=200,
    repeats=3,
)
CLUTTER = replace(
    EMOJI, dataset="clutter", crop_size=None, resize=None, cache_images=False
)
BIRDS = replace(
    RECIPES["folder"],
    augmentation="mlrc-area",
    crop_size=160,
    negative_margin=0.3841,
    triplet_margin=0.0961,
    steps=600,
    steps_per_evaluation=25,
    memory_capacity=400,
    memory_warmup_steps=100,
    validation_folds=4,
    repeats=3,
)
BLOCKS = (
    (PAIRS, FULL[:3]),
    (PAIRS, ("gsp",)),
    (OTHERS, ("gap", "ccp")),
    (PAIRS, FULL[4:]),
    (OTHERS, ("gsp",)),
)
SIZES = (16, 32, 64, 128)
NUMBERS = (1, 2, 4, 8)
POOLS = (4, 7, 12)
ANCHORS = (2e-6, 2e-4, 2e-2)

STUDIES = {
    "emoji": grid(
        "emoji, MobileNetV2 fine-tuned end to end", EMOJI, BLOCKS, CENTERS
    ),
    "emoji-clutter": grid(
        "emoji among distractors, MobileNetV2 fine-tuned end to end",
        CLUTTER,
        (
            (PAIRS, ("gap", "gsp", "gsp-zsr")),
            (("proxy-anchor", "proxy-nca"), ("gap", "gsp")),
            (PAIRS, ("ccp", "ccp-gsp", "xml")),
        ),
    ),
    "emoji-batch": grid(
        "emoji, images in a batch",
        EMOJI,
        [((f"c2-batch{size}" for size in SIZES), ("gap", "ccp"))],
        rows={
            f"c2-batch{size}": {"loss": "c2", "classes_per_batch": size // 4}
            for size in SIZES
        },
    ),
    "emoji-proxies": grid(
        "emoji, proxies of a class, samples to choose from, anchors",
        EMOJI,
        [
            (("c2",), ("gap", "single")),
            (
                [f"c2-{n}of{pool}" for n in NUMBERS for pool in POOLS],
                ("ccp",),
            ),
            (
                [f"c2-{n}at{w:g}" for n in (1, 4) for w in ANCHORS],
                ("ccp",),
            ),
        ],
        rows={
            f"c2-{n}of{pool}": {
                "loss": "c2",
                "proxies_per_class": n,
                "ccp_pool_size": pool,
            }
            for n in NUMBERS
            for pool in POOLS
        }
        | {
            f"c2-{n}at{weight:g}": {
                "loss": "c2",
                "proxies_per_class": n,
                "anchor_weight": weight,
            }
            for n in (1, 4)
            for weight in ANCHORS
        },
    ),
    "components": grid(
        "emoji among distractors, components of GSP",
        CLUTTER,
        [(("c2", "proxy-nca"), ("gap", "gsp", "zsr", "gsp-zsr"))],
    ),
    # 25 classes to learn from, 25 unseen.
    "birds50": grid(
        "birds50, MobileNetV2 fine-tuned end to end",
        BIRDS,
        (
            (("ms", "c2", "proxy-anchor"), ("gap", "gsp", "ccp")),
            (("ms", "c2"), ("single", "gsp-zsr", "xbm", "xml", "ccp-gsp")),
        ),
        methods=dict.fromkeys(SAMPLED_METHODS, {"ccp_pool_size": 12}),
    ),
    "birds50-frozen": grid(
        "birds50, frozen MobileNetV2 features",
        replace(
            FEATURES,
            steps=400,
            steps_per_evaluation=10,
            protocol="fair",
            repeats=1,
        ),
        (
            (("c2", "ms", "proxy-anchor"), ("gap", "gsp", "ccp")),
            (("c2", "ms"), ("single", "gsp-zsr", "xbm", "xml")),
        ),
        methods=dict.fromkeys(SAMPLED_METHODS, {"ccp_pool_size": 12}),
    ),
    # Nothing below is pretrained: proxies begin as samples once pairs within
    # the batch have taught the network something.
    "glyphs": grid(
        "glyphs, every loss",
        replace(GLYPHS, steps=600, steps_per_evaluation=50, repeats=3),
        (
            (PAIRS, ("gap", "gsp")),
            (OTHERS, ("gap", "gsp")),
            (FURTHER, ("gap",)),
            (PAIRS, ("single", "ccp", "gsp-zsr", "xbm", "xml")),
        ),
        rows=CENTERS,
        methods=dict.fromkeys(
            SAMPLED_METHODS, {"ccp_warmup": 4, "ccp_pool_size": 12}
        ),
    ),
    "collage": grid(
        "CIFAR collage",
        replace(
            RECIPES["collage"],
            steps=800,
            steps_per_evaluation=50,
            classes_per_batch=3,
            samples_per_class=16,
            images_per_class=1000,
            repeats=3,
        ),
        [
            (
                ("c2", "proxy-nca"),
                ("gap", "gsp", "gsp-zsr"),
            ),
            (("c2",), ("single", "ccp", "xbm", "xml")),
        ],
        methods=dict.fromkeys(
            SAMPLED_METHODS, {"ccp_warmup": 4, "ccp_pool_size": 12}
        )
        | {"gsp-zsr": {"regularizer_weight": 0.5}},
    ),
    "omniglot": grid(
        "Omniglot, small background set",
        replace(
            RECIPES["omniglot"],
            steps=600,
            steps_per_evaluation=25,
            protocol="fair",
            repeats=1,
        ),
        [(("c2", "ms"), ("gap", "gsp", "single", "ccp", "gsp-zsr", "xml"))],
        methods=dict.fromkeys(
            SAMPLED_METHODS, {"ccp_warmup": 4, "ccp_pool_size": 12}
        ),
    ),
    **{dataset: _published(dataset) for dataset in SMALL + LARGE},
}
# `poolings` is the papers' own comparison; one study for each data set.
STUDIES |= {
    f"poolings{suffix}": _poolings(name, STUDIES[name].cells["c2", "gap"])
    for suffix, name in {
        "": "collage",
        "-glyphs": "glyphs",
        "-birds50": "birds50",
        "-birds50-frozen": "birds50-frozen",
        "-emoji": "emoji",
    }.items()
}
