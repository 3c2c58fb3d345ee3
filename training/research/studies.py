"""The studies: tables of losses x methods on one data set each.

A cell is a recipe. Its learning rate is the middle of the grid that
`training.research.study` searches, for every cell alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.recipes.choices import is_proxy_loss, losses
from training.recipes.named import LOSSES, PUBLISHED, named
from training.recipes.recipe import Recipe

# The baseline of every table: raw features, averaged and normalized.
UNTRAINED = ("-", "untrained")
# Poolings of the papers' comparison, and the newest.
POOLINGS = (
    *("gem", "crow", "weldon", "delf", "attention", "sim-pool", "solar"),
    *("netvlad", "netvlad-large", "gem-gsp", "gsp-affine"),
)
PROXY_LOSSES = tuple(filter(is_proxy_loss, losses()))
# Pretrained weights are an option of the command.
FOLDER = named("folder").with_(backbone_weights=None)
FEATURES = named("folder-features").with_(backbone_weights=None)
# As the recipes start proxies from samples, and fine-tune with proxy losses.
SAMPLED: dict[str, Any] = {
    "proxies_per_class": 4,
    "ccp_pool_size": 7,
    "ccp_patience": 2,
    "in_batch_weight": 1.0,
    "proxy_learning_rate_multiplier": 1.0,
    "normalization": "ball",
}
PROXY_START: dict[str, Any] = {
    "classes_per_batch": 32,
    "samples_per_class": 1,
    "warmup_steps": 100,
}
_SHARE = {"log_regularizer_share": True}
_SAMPLED = {key: SAMPLED[key] for key in SAMPLED if key != "ccp_patience"}
METHODS: dict[str, dict[str, Any]] = {
    "gap": {},
    "gsp": {"pooling": "gsp"},
    "gsp-zsr": {"pooling": "gsp", "regularizer": "zsr", **_SHARE},
    "xml": {"regularizer": "xml", **_SHARE},
    "gsp-xml": {"pooling": "gsp", "regularizer": "xml", **_SHARE},
    "xbm": {"memory": "xbm", "in_batch_weight": 1.0},
    "single": {"ccp": "single"},
    "ccp": {"ccp": "on"},
    "ccp-gsp": {"ccp": "on", "pooling": "gsp"},
    "single-sphere": {"ccp": "single", "normalization": "l2"},
    "ccp-sphere": {"ccp": "on", "normalization": "l2"},
    "ccp-rollback": {"ccp": "on", "ccp_rollback": True},
    "ccp-unanchored": {"ccp": "on", "anchor_weight": 0.0},
    "ccp-strong": {"ccp": "on", "anchor_weight": 0.02},
    "ccp-one": {"ccp": "on", "proxies_per_class": 1},
    "ccp-one-unanchored": {
        "ccp": "on",
        "proxies_per_class": 1,
        "anchor_weight": 0.0,
    },
}
# Methods that each method is compared with: what it adds one thing to.
BASELINES: dict[str, tuple[str, ...]] = {
    "gap": (),
    "untrained": (),
    "gsp-zsr": ("gap", "gsp"),
    "gsp-xml": ("gap", "gsp"),
    "xbm-gsp-zsr": ("gap", "xbm"),
    "ccp": ("gap", "single"),
    "ccp-gsp": ("gap", "gsp"),
    "ccp-sphere": ("gap", "single-sphere"),
    "ccp-rollback": ("gap", "single"),
    "ccp-unanchored": ("gap", "single"),
    "ccp-strong": ("gap", "ccp"),
    "ccp-one": ("gap", "ccp"),
    "ccp-one-unanchored": ("gap", "ccp-one"),
    "ccp-gsp-zsr": ("gap", "ccp"),
    "gem-gsp": ("gap", "gem"),
    "gsp-affine": ("gap", "gsp", "delf"),
    "gsp-zsr9": ("gap", "gsp"),
}
PAIRS = ("c1", "c2", "ms")
PROXIES = ("proxy-anchor", "proxy-nca")
FULL = ("gap", "gsp", "gsp-zsr", "xml", "xbm", "single", "ccp")


@dataclass(frozen=True)
class Study:
    """A table of recipes: title and text of its page, and its cells."""

    title: str
    cells: Mapping[tuple[str, str], Recipe] = field(default_factory=dict)
    """(row, method) -> recipe, the most telling cells first. A row is a loss,
    perhaps with other settings."""
    about: str = ""
    seeds: int = 3
    over: str = "classes"
    """What intervals generalize to beside other models: other `classes`, or
    other `images` of the test classes where these are all there are."""
    num_folds: int = 0
    """With 2 or more, each seed trains one model a fold of the training
    classes, and these are scored alone and together, as in "A Metric Learning
    Reality Check" (Musgrave et al., section 4)."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows of the table, in order."""
        return tuple(dict.fromkeys(row for row, _ in self.cells))

    @property
    def methods(self) -> tuple[str, ...]:
        """Columns of the table, in order."""
        return tuple(dict.fromkeys(method for _, method in self.cells))


def cell(base: Recipe, loss: str, method: str, **settings: Any) -> Recipe:
    """The recipe of a loss with a method of `METHODS`, or a pooling."""
    chosen = dict(METHODS.get(method, {"pooling": method}))
    if "ccp" in chosen:
        chosen["ccp_patience"] = SAMPLED["ccp_patience"]
        if loss not in PROXY_LOSSES:
            chosen = {**_SAMPLED, **chosen}
    return base.with_(**{"loss": loss, **chosen, **settings})


def grid(
    title: str,
    base: Recipe,
    blocks: Iterable[tuple[Iterable[str], Iterable[str]]],
    *,
    rows: Mapping[str, Mapping[str, Any]] | None = None,
    methods: Mapping[str, Mapping[str, Any]] | None = None,
    **facts: Any,
) -> Study:
    """The untrained baseline, then every row with every method of a block.

    All cells share the settings of `base`. `rows` has the settings of rows that
    are no loss alone, each with its `loss`, `methods` further settings of
    methods; `facts` are arguments of `Study`.
    """
    cells = {UNTRAINED: base.with_(steps=0)}
    for names, words in blocks:
        names = tuple(names)
        for method in words:
            for row in names:
                own = dict((rows or {}).get(row, {"loss": row}))
                own |= (methods or {}).get(method, {})
                recipe = cell(base, method=method, **own)
                cells.setdefault((row, method), recipe)
    return Study(title, cells, **facts)


def _proxy_rows(**settings):
    """Proxy losses that fine-tune, as the papers train them."""
    return {
        loss: {"loss": loss, **PROXY_START, **settings} for loss in PROXY_LOSSES
    }


def _pools(size, **settings):
    """Settings of methods that sample proxies, from pools of this size."""
    words = [word for word, own in METHODS.items() if "ccp" in own]
    return {word: {"ccp_pool_size": size, **settings} for word in words}


def _published(dataset):
    """The cells that the papers print, the baselines of all losses first."""
    losses = tuple(LOSSES)
    cells = [(loss, "gap") for loss in losses]
    cells += [(loss, "ccp") for loss in ("c1", "c2", "ms", "triplet")]
    cells += [(loss, "gsp-zsr") for loss in losses if loss != "soft-triple"]
    cells += [("c1", "xbm"), ("c2", "xbm"), ("c2", "xml")]
    cells += [("proxy-anchor", "xml"), ("c2", "gsp"), ("c1", "xbm-gsp-zsr")]
    cells += [("c1", "ccp-gsp-zsr"), ("c1", "xbm-s"), ("c2", "xbm-s")]
    cells += [("c1", "ccp-s"), ("c2", "ccp-s")]
    return Study(
        f"{dataset}, published settings",
        {UNTRAINED: named(dataset).with_(steps=0)}
        | {
            (loss, method): named(
                dataset if method == "gap" else f"{dataset}-{method}", loss=loss
            )
            for loss, method in cells
        },
        num_folds=4,
    )


# Many classes with few images each, the regime of Online Products.
EMOJI = FOLDER.with_(
    augmentation="none",
    crop_size=96,
    resize=96,
    cache_images=True,
    loss_arguments={"positive_margin": 0.2858, "negative_margin": 0.5130},
    num_prototypes=64,
    inverse_temperature=5.0,
    steps=1500,
    steps_per_evaluation=50,
    memory_capacity=800,
    memory_warmup_steps=200,
)
# Features of the pretrained network from drawings of 160 pixels: 5 x 5 maps.
EMOJI_FEATURES = EMOJI.with_(
    frozen="all",
    cache_images=False,
    cache_features=True,
    crop_size=160,
    resize=160,
    learning_rate=FEATURES.learning_rate,
)
BIRDS = FOLDER.with_(
    augmentation="mlrc-area",
    crop_size=160,
    loss_arguments={"negative_margin": 0.3841},
    steps=250,
    steps_per_evaluation=25,
    memory_capacity=400,
    memory_warmup_steps=100,
    validation_folds=4,
)
# Batches of 32 for every loss: 8 x 4 where pairs are compared, else 16 x 2.
GLYPHS = named("glyphs", loss="proxy-nca").with_(
    loss="c2",
    classes_per_batch=8,
    samples_per_class=4,
    steps=3600,
    fall_share=0.6,
    steps_per_evaluation=50,
)
GLYPH_ROWS: dict[str, dict[str, Any]] = {
    loss: {"loss": loss, "classes_per_batch": 16, "samples_per_class": 2}
    for loss in PROXY_LOSSES
} | {"ms": {"loss": "ms", "loss_arguments": {"beta": 10.0}}}
# The glyph network as it leaves a training on single characters, on canvases
# where the letter is a quarter.
CHARACTERS = GLYPHS.with_(
    backbone_weights="characters",
    frozen="all",
    cache_features=True,
    loss_arguments={"negative_margin": 0.3841},
    classes_per_batch=16,
    transport_ratio=0.1,
    inverse_temperature=80.0,
    learning_rate=2e-3,
    steps=800,
    fall_share=1.0,
    ramp_steps=0,
    schedule="cosine",
    steps_per_evaluation=100,
)
TUNED: dict[str, Any] = {
    "loss": "c2",
    "frozen": "none",
    "cache_features": False,
    "inverse_temperature": 40.0,
    "learning_rate": 3e-3,
    "fall_share": 0.25,
    "ramp_steps": 50,
}
# Real drawings in clutter, and a network pretrained on photographs.
COLLAGES = named("collage").with_(
    canvas_size=192,
    backbone=FEATURES.backbone,
    frozen="all",
    cache_features=True,
    loss_arguments=FEATURES.loss_arguments,
    classes_per_batch=8,
    samples_per_class=4,
    transport_ratio=0.1,
    inverse_temperature=80.0,
    steps=600,
    steps_per_evaluation=50,
)
KINDS = COLLAGES.with_(classes_per_batch=6, samples_per_class=6)
# The papers' collage, and their settings, with the classes of CIFAR-10.
CIFAR_COLLAGES = named("collage").with_(
    backbone="picture-cnn",
    backbone_weights=None,
    frozen="none",
    images_per_class=1000,
    loss="c2",
    loss_arguments={"negative_margin": 0.3841},
    classes_per_batch=4,
    samples_per_class=16,
    num_prototypes=128,
    transport_ratio=0.2,
    inverse_temperature=10.0,
    regularizer_weight=None,
    learning_rate=1e-3,
    schedule="plateau",
    steps=300,
    steps_per_evaluation=50,
)
# Where GSP pays: one thing changes from row to row.
PAYS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "cells-1": {"canvas_size": 24, "transport_ratio": 0.4},
    "cells-9": {"canvas_size": 72, "transport_ratio": 0.044},
    "sees-19": {"backbone": "glyph-cnn-local"},
    "sees-all": {"backbone": "glyph-cnn-global"},
    "tuned-x0.1": {**TUNED, "backbone_learning_rate_multiplier": 0.1},
    "tuned": TUNED,
    "tuned-long": {**TUNED, "steps": 3200, "steps_per_evaluation": 400},
    "random": {**TUNED, "backbone_weights": None},
}
# GSP's own settings: transport ratio in percent, inverse temperature; others.
GSP_SETTINGS: dict[str, dict[str, Any]] = {
    f"gsp-ratio{percent}-{sharpness}": {
        "transport_ratio": percent / 100,
        "inverse_temperature": float(sharpness),
    }
    for percent, sharpness in (
        *((10, 40), (10, 80), (10, 160), (5, 20), (5, 40)),
        *((20, 40), (30, 5), (30, 20)),
    )
} | {
    "gsp-32": {"num_prototypes": 32},
    "gsp-random": {"prototype_start": "random"},
    "gsp-pooled": {"prototype_start": "pooled"},
}
STUDIES: dict[str, Study] = {
    "emoji": grid(
        "emoji, MobileNetV2 fine-tuned end to end",
        EMOJI,
        [((*PAIRS, *PROXIES), ("gap", "gsp", "ccp")), (PAIRS, FULL)],
        rows=_proxy_rows(),
        about=(
            "Proxy losses see batches of 32 classes with one image each, and "
            "the backbone waits for the first 100 steps, as in the papers; "
            "all others see 8 classes with 4 images. GSP has transport ratio "
            "0.3 and inverse temperature 5."
        ),
    ),
    "emoji-frozen": grid(
        "emoji, frozen MobileNetV2 features",
        EMOJI_FEATURES,
        [
            (("c2", "ms"), ("gap", "single", "gsp", "ccp", "xbm")),
            # The papers' largest gain of a memory.
            (("c1",), ("gap", "xbm")),
        ],
        about="GSP has transport ratio 0.3 and inverse temperature 5.",
    ),
    "birds50": grid(
        "birds50, MobileNetV2 fine-tuned end to end",
        BIRDS,
        [
            (("c2", "ms", "proxy-anchor"), ("gap", "gsp", "ccp")),
            (("c2", "ms"), FULL),
        ],
        rows=_proxy_rows(
            classes_per_batch=16, samples_per_class=2, warmup_steps=50
        ),
        methods=_pools(12),
    ),
    "birds50-frozen": grid(
        "birds50, frozen MobileNetV2 features",
        FEATURES.with_(steps=400, steps_per_evaluation=10),
        [
            (("c2",), ("gap", "gsp", "gsp-affine")),
            (("c2-5",), ("gsp", "gsp-affine")),
            (("c2-16",), ("gsp", "gsp-zsr")),
            (("ms",), ("gap", "gsp")),
            (("c2", "ms"), ("xml", "xbm")),
        ],
        rows={
            "c2-5": {"loss": "c2", "inverse_temperature": 5.0},
            "c2-16": {
                "loss": "c2",
                "num_prototypes": 16,
                "regularizer_weight": 0.5,
            },
        },
        seeds=1,
        num_folds=4,
        about=(
            "GSP has transport ratio 0.3 and inverse temperature 20, in "
            "`c2-5` 5; it has 64 prototypes, in `c2-16` 16."
        ),
    ),
    "ccp": grid(
        "chance constrained programming on frozen features of birds",
        FEATURES.with_(
            crop_size=160,
            steps=400,
            steps_per_evaluation=10,
            schedule="constant",
        ),
        [
            (("c2", "ms"), ("gap", "single", "ccp", "ccp-rollback")),
            (
                ("c2",),
                (
                    *("ccp-unanchored", "ccp-strong"),
                    *("ccp-one", "ccp-one-unanchored"),
                    *("single-sphere", "ccp-sphere"),
                ),
            ),
        ],
        methods={
            word: {"proxies_per_class": 8, **own, **METHODS[word]}
            for word, own in _pools(12, ccp_patience=3).items()
        },
        num_folds=4,
        about=(
            "Embeddings in the unit ball, on the sphere where a row says so. "
            "A problem ends after three evaluations, of ten steps each, "
            "without a gain. The rate stays constant. The pull towards the "
            "last problem's weights is 0.0002, in `ccp-strong` a hundred times "
            "that; `ccp-one` has one proxy a class, the others eight. The "
            "covering radius is that of the last proxies when they were "
            "chosen."
        ),
    ),
    # Memory and proxies start once pairs have taught the network something:
    # C2 with one set of proxies has MAP@R .327 on validation classes after a
    # third of the steps, .259 after a sixth; pairs alone .301.
    "glyphs": grid(
        "glyphs, from random weights",
        GLYPHS,
        [((*PAIRS, *PROXIES), ("gap", "gsp")), (PAIRS, FULL)],
        rows=GLYPH_ROWS,
        methods=_pools(12, ccp_warmup=24)
        | {"xbm": {"memory_warmup_steps": 1200}},
    ),
    "clutter-pretrained": grid(
        "glyphs, a network pretrained on single characters",
        CHARACTERS,
        [
            ((*PAIRS, *PROXIES), ("gap", "gsp", "gsp-affine", "gsp-zsr")),
            ((*PAIRS, *PROXIES), ("xml", "gsp-xml", "ccp", "ccp-gsp")),
            (PAIRS, ("xbm",)),
            (("ms", "proxy-nca"), ("delf",)),
            (("libc",), ("gap", "gsp", "xml")),
            (("c2-tuned",), ("gap", "gsp", "gsp-affine", "gsp-zsr", "delf")),
            (("c2-alone",), ("gap",)),
            (("c2",), (*POOLINGS, "single")),
        ],
        rows={
            "ms": GLYPH_ROWS["ms"],
            "c2-tuned": TUNED,
            "c2-alone": {"loss": "c2", "distractors": False},
        },
        methods=_pools(12),
        about=(
            "`c2-alone` has no symbols around the letters: an upper bound. "
            "The network is frozen, but fine-tuned with `c2-tuned`. GSP has "
            "transport ratio 0.1 and inverse temperature 80, with `c2-tuned` "
            "40; `gem-gsp` has power 3. All other poolings have their "
            "defaults."
        ),
    ),
    "collages": grid(
        "emoji among other emoji, frozen MobileNetV2 features",
        COLLAGES,
        [
            (("c2",), ("gap", "gsp", "gsp-affine", "delf", "gsp-zsr")),
            (("c2-alone",), ("gap",)),
        ],
        rows={"c2-alone": {"loss": "c2", "distractors": False}},
        about=(
            "A drawing fills a quarter of a canvas of 192 pixels, emoji of "
            "other classes the rest; they differ between training and test. "
            "`c2-alone` has no distractors: an upper bound. GSP has transport "
            "ratio 0.1 and inverse temperature 80. The papers' numbers are of "
            "CIFAR-100."
        ),
    ),
    "emoji-kinds": grid(
        "kinds of emoji among objects and symbols, MobileNetV2",
        KINDS,
        [
            (("c2-frozen", "c2"), ("gap", "gsp", "gsp-zsr")),
            (("c2-alone",), ("gap",)),
            (("c2-frozen",), POOLINGS),
        ],
        rows={
            "c2-frozen": {"loss": "c2"},
            "c2": {
                "loss": "c2",
                "frozen": "none",
                "cache_features": False,
                "backbone_learning_rate_multiplier": 0.01,
                "steps": 200,
            },
            "c2-alone": {"loss": "c2", "distractors": False},
        },
        about=(
            "A drawing of a face, person, animal, dish, place or activity "
            "fills a quarter of a canvas of 192 pixels, objects, symbols and "
            "flags the rest. Its kind is recognized, by emoji that differ "
            "between training and test. `c2-alone` has no distractors: an "
            "upper bound. GSP has transport ratio 0.1 and inverse "
            "temperature 80. Fine-tuned, the network learns at a hundredth "
            "of the head's rate, 1e-5 at the middle of the grid. The papers' "
            "numbers are of CIFAR-100."
        ),
        over="images",
    ),
    "emoji-kinds-wide": grid(
        "kinds of emoji, frozen MobileNetV2 of full width",
        KINDS.with_(backbone_width=1.0),
        [(("c2-frozen",), ("gap", "gsp", "gsp-zsr", *POOLINGS))],
        rows={"c2-frozen": {"loss": "c2"}},
        seeds=1,
        about=(
            "The canvases of `emoji-kinds`, and a network of 2.3 million "
            "parameters in place of 0.4 million. The papers' numbers are of "
            "CIFAR-100."
        ),
        over="images",
    ),
    "cifar-collage": grid(
        "CIFAR-10 among birds and frogs, a small network pretrained on all",
        CIFAR_COLLAGES,
        [
            (
                ("c2-frozen", "c2"),
                ("gap", "gsp", "gsp-zsr", "gsp-zsr9"),
            ),
            (("c2-alone",), ("gap",)),
        ],
        rows={
            "c2-frozen": {
                "loss": "c2",
                "frozen": "all",
                "cache_features": True,
            },
            "c2-alone": {"loss": "c2", "distractors": False},
        },
        methods={
            "gsp-zsr": {**METHODS["gsp-zsr"], "regularizer_weight": 0.5},
            "gsp-zsr9": {
                **METHODS["gsp-zsr"],
                "regularizer_weight": 0.5,
                "zero_shot_scale": 9.5,
            },
        },
        about=(
            "A picture fills a quarter of a canvas of 64 pixels. Training: "
            "airplane, automobile, cat and deer among birds; test: ship, "
            "truck, dog and horse among frogs; validation: other images of "
            "the training classes. `experiments.cifar_classifier` pretrains "
            "the network on single pictures. 4 x 16 images a batch, GSP with "
            "128 prototypes, ratio 0.2 and inverse temperature 10, ZSR with "
            "weight 0.5, at scale 1 and 9.5, as the papers have them. "
            "`c2-alone` has no distractors: an upper bound. The rate of scale "
            "9.5, end to end, is from another pretraining of the network. The "
            "papers' numbers are of CIFAR-100."
        ),
        over="images",
    ),
    "gsp-settings": grid(
        "GSP's settings on glyphs, a network pretrained on single characters",
        CHARACTERS,
        [(("c2",), ("gap", *GSP_SETTINGS))],
        methods={
            word: {"pooling": "gsp", **own}
            for word, own in GSP_SETTINGS.items()
        },
        seeds=1,
        about=(
            "`ratio10-80` is transport ratio 0.1 with inverse temperature 80, "
            "as in the other rows. `gsp-32` has 32 prototypes, not 64; they "
            "start at random or from averages of images in `gsp-random` and "
            "`gsp-pooled`."
        ),
    ),
    "gsp-pays": grid(
        "When GSP pays: one change at a time",
        CHARACTERS,
        [(PAYS, ("gap", "gsp"))],
        rows={row: {"loss": "c2", **own} for row, own in PAYS.items()},
        seeds=1,
        about=(
            "Letters among symbols, a network pretrained on single "
            "characters. In each row one thing differs from the first: the "
            "cells of a canvas, one of which is the letter (GSP's ratio is 0.4 "
            "of a cell); the pixels that a feature sees (43 of 48 in the first "
            "row); how fast the network learns beside its head; for how long."
        ),
    ),
    **{dataset: _published(dataset) for dataset in PUBLISHED},
}
