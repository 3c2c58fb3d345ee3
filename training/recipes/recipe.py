"""Everything that defines a training run, in one flat record.

A number stands with its range: `Annotated[float, positive]`. A field whose
type is a number without one fails the tests, so nothing is unchecked.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from training.recipes.ranges import (
    OpenWord,
    Range,
    at_least,
    check_fields,
    not_negative,
    positive,
    require,
    share,
    up_to_one,
)

Dataset = Literal[
    "glyphs",
    "collage",
    "cub",
    "cars",
    "sop",
    "inshop",
    "cifar10",
    "cifar100",
    "mnist",
    "omniglot",
    "folder",
    "clutter",
    "csv",
]
Backbone = Literal[
    "glyph-cnn",
    "mobilenet-v2",
    "resnet20",
    "resnet20-v2",
    "resnet50",
    "bn-inception",
]
# What stands before the name of a preset of keras-hub.
HUB_PREFIX = "hub:"
Pooling = Literal[
    "gap",
    "gmp",
    "gem",
    "gsp",
    "gem-gsp",
    "gmp-gsp",
    "gsp-background",
    "gsp-learned",
    "gsp-unary",
    "gap-gmp",
    "attention",
    "cbam",
    "crow",
    "delf",
    "gemax",
    "gsop",
    "netvlad",
    "netvlad-large",
    "ot-aggregation",
    "otk",
    "otk-large",
    "sim-pool",
    "smk",
    "solar",
    "weldon",
]
# Those whose own histogram a regularizer takes.
GSP_POOLINGS = (
    "gsp",
    "gem-gsp",
    "gmp-gsp",
    "gsp-background",
    "gsp-learned",
    "gsp-unary",
)
# Poolings that the papers' comparison lets see the backbone's own features,
# and SimPooling, whose pooled vector is projected. The others
# see projected features.
POOLED_FIRST = (
    "gmp",
    "gem",
    "gem-gsp",
    "gap-gmp",
    "cbam",
    "crow",
    "delf",
    "gemax",
    "sim-pool",
    "smk",
    "solar",
)
# The sizes of the papers' comparison: 8 x 16 and 64 x 128.
FEW, MANY = 8, 64
PairLossName = Literal[
    "c1",
    "c2",
    "triplet",
    "ms",
    "supcon",
    "ntxent",
    "circle",
    "margin",
    "lifted",
    "n-pair",
    "potential-field",
    "smooth-ap",
    "recall-at-k",
]
ProxyLossName = Literal[
    "proxy-nca",
    "proxy-anchor",
    "soft-triple",
    "arcface",
    "cosface",
    "normalized-softmax",
]
# Neither pairs nor proxies: a classifier of its own.
ClassifierLossName = Literal["libc"]
Miner = Literal[
    "none",
    "batch-hard",
    "semi-hard",
    "distance-weighted",
    "multi-similarity",
]
# Of the pair losses those that look at a whole ranking.
LIST_LOSSES = ("smooth-ap", "recall-at-k")
# Their classes are drawn here; those of the others are published.
OWN_SPLITS = ("folder", "csv")
# Data sets that are composed of pictures.
CANVASES = ("collage", "clutter")
# Words, which type checkers would take for any text.
PAIR_LOSSES: tuple[Any, ...] = get_args(PairLossName)
PROXY_LOSSES: tuple[Any, ...] = get_args(ProxyLossName)
CLASSIFIER_LOSSES: tuple[Any, ...] = get_args(ClassifierLossName)


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """What is learned from and scored, and how images are cut."""

    dataset: Dataset = "glyphs"
    """Images to learn from; all but `glyphs` are read from `data_dir`."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    source: Literal["disk", "tfds"] = "disk"
    """Original layout, or prepared by TensorFlow Datasets in `data_dir`."""
    train_classes: Annotated[int | None, positive] = None
    """folder, csv: classes to learn from, drawn at random; None is half."""
    images_per_class: Annotated[int | None, positive] = None
    """collage, clutter: at most so many images of each class; None is all."""
    canvas_size: Annotated[int | None, positive] = None
    """collage, clutter: side of the canvases in pixels; None is 64 and 96."""
    corrupt_images: Literal["raise", "skip"] = "raise"
    """Name unreadable files in one error, or leave them out."""
    protocol: Literal["single", "fair", "conventional"] = "single"
    """One model chosen on validation classes; the fair protocol of 4 folds;
    or the conventional one, which chooses on the test classes."""
    repeats: Annotated[int, positive] = 3
    """How often each model of the other two protocols is trained."""
    validation_folds: Annotated[int, at_least(2)] = 4
    """Where a data set has no validation classes, 1 training fold in so
    many serves."""
    validation_fold: Annotated[int, not_negative] = 0
    """Which fold that is, in [0, validation_folds)."""
    augmentation: Literal["none", "mlrc", "mlrc-area"] = "none"
    """Random crops and flips: sides of 40-256 pixels, or area 0.16-1."""
    crop_size: Annotated[int | None, positive] = None
    """Side of the square that images are cropped to, pixels; None keeps
    them as they are."""
    resize: Annotated[int | None, positive] = None
    """Shorter side in pixels from which crops are cut; None is 256/227 of
    the crop, as in the papers; the crop's own size keeps square images
    whole."""
    cache_images: bool = False
    """Keep the images in memory as they are scored, without augmentation:
    for small ones, whose files would be decoded again in every step."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """From an image to its embedding."""

    backbone: Annotated[Backbone | str, OpenWord(HUB_PREFIX)] = "glyph-cnn"
    """Network from images to a feature map; `hub:PRESET` is any image model
    of keras-hub, at the image size that it was made for."""
    backbone_width: Annotated[float, positive] = 0.35
    """mobilenet-v2: factor on its channels, alpha."""
    backbone_weights: str | None = None
    """Weights file, or `imagenet` (downloaded); None trains from scratch."""
    frozen: Literal["none", "batch-norm", "all"] = "none"
    """Which part of the backbone stays as it is."""
    cache_features: bool = False
    """Compute the frozen backbone's features once, without augmentation."""
    pooling: Pooling = "gap"
    """Average, max, generalized mean, generalized sum, combinations of them,
    or another of the layers by its name; `large` keeps 64 vectors of the
    embedding's width, `netvlad`, `otk` and `ot-aggregation` alone 8 that
    make up its width together."""
    num_prototypes: Annotated[int, positive] = 64
    """Prototypes of GSP, ZSR and XML."""
    prototype_start: Literal["data", "random"] = "data"
    """Prototypes, and OTK's references, start from local features that cover
    the data, by greedy k-center, or at random."""
    transport_ratio: Annotated[float, up_to_one] = 0.2
    """Fraction of the features that GSP pools, in (0, 1]."""
    inverse_temperature: Annotated[float, positive] = 10.0
    """Sharpness of GSP's selection."""
    power: Annotated[float, Range(above=1)] = 3.0
    """Exponent of the generalized mean, above 1; of gem and gem-gsp, which
    learn it, the first one."""
    gemax_ridge: Annotated[float, positive] = 1.0
    """gemax: ridge of its regression, in squared features; a large one gives
    the average's direction."""
    embedding_size: Annotated[int, positive] = 128
    """Width of the embedding."""
    normalization: Literal["l2", "ball"] = "l2"
    """Embeddings on the unit sphere, or in the unit ball."""


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """What is learned: the loss, and each loss's own numbers."""

    loss: PairLossName | ProxyLossName | ClassifierLossName = "c2"
    """Contrastive (Euclidean c2, cosine c1), triplet, multi-similarity and
    other pair losses, two on whole lists, a proxy loss, or messages between
    the samples of a batch (libc)."""
    miner: Miner = "none"
    """Which pairs a pair loss is told of; not for losses on whole lists."""
    positive_margin: Annotated[float, not_negative] = 0.0
    """c2: distance below which a positive pair costs nothing."""
    negative_margin: Annotated[float, not_negative] = 0.5
    """c2: distance above which a negative pair costs nothing."""
    cosine_margin: Annotated[float, Range(at_least=-1, at_most=1)] = 0.5
    """c1: cosine below which a negative pair costs nothing."""
    triplet_margin: Annotated[float, not_negative] = 0.05
    """triplet: by how much negatives have to be further away."""
    ms_alpha: Annotated[float, positive] = 2.0
    """ms: sharpness on positive pairs."""
    ms_beta: Annotated[float, positive] = 40.0
    """ms: sharpness on negative pairs."""
    ms_base: Annotated[float, Range(at_least=-1, at_most=1)] = 0.5
    """ms: cosine that separates the two."""
    ms_mining_margin: Annotated[float | None, not_negative] = None
    """ms: margin of the original's miner (0.1 there); None mines nothing."""
    proxy_temperature: Annotated[float, positive] = 0.11
    """proxy-nca: cosines are divided by it."""
    anchor_margin: Annotated[float, Range(at_least=-1, at_most=1)] = 0.1
    """proxy-anchor: cosine margin."""
    anchor_alpha: Annotated[float, positive] = 32.0
    """proxy-anchor: sharpness."""
    soft_triple_scale: Annotated[float, positive] = 20.0
    """soft-triple: factor on similarities."""
    soft_triple_gamma: Annotated[float, positive] = 0.1
    """soft-triple: temperature between the centers of one class."""
    soft_triple_margin: Annotated[float, Range(at_least=-1, at_most=1)] = 0.01
    """soft-triple: cosine margin."""
    soft_triple_tau: Annotated[float, not_negative] = 0.2
    """soft-triple: weight of the center regularizer."""
    contrast_temperature: Annotated[float, positive] = 0.1
    """supcon, ntxent: cosines are divided by it."""
    circle_margin: Annotated[float, Range(above=0, at_most=0.99)] = 0.4
    """circle: positives are to exceed 1 less this cosine."""
    circle_scale: Annotated[float, positive] = 80.0
    """circle: sharpness."""
    boundary: Annotated[float, positive] = 1.2
    """margin: distance between near and far; where it starts if learned."""
    boundary_margin: Annotated[float, not_negative] = 0.2
    """margin: by how much pairs have to be on their side of it."""
    learn_boundary: bool = False
    """margin: learn the boundary, one for all classes."""
    lifted_margin: Annotated[float, not_negative] = 1.0
    """lifted: distance from which negatives weigh less than one."""
    field_radius: Annotated[float, Range(at_least=0.02)] = 0.2
    """potential-field: distance within which only negatives are felt."""
    field_decay: Annotated[float, positive] = 4.0
    """potential-field: exponent by which the force fades."""
    rank_temperature: Annotated[float, positive] = 0.01
    """smooth-ap, recall-at-k: cosine over which a rank changes by one."""
    arcface_margin: Annotated[float, Range(at_least=0, at_most=1.57)] = 0.5
    """arcface: angle added to the own class, radians."""
    cosface_margin: Annotated[float, not_negative] = 0.35
    """cosface: cosine taken off the own class."""
    face_scale: Annotated[float, positive] = 64.0
    """arcface, cosface: factor on similarities."""
    softmax_temperature: Annotated[float, positive] = 0.05
    """normalized-softmax: cosines are divided by it."""


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """What is added to a loss: regularizer, memory, sampled proxies."""

    regularizer: Literal["none", "zsr", "xml"] = "none"
    """Zero-shot regularizer or cross-batch metric learning."""
    regularizer_weight: Annotated[float | None, share] = None
    """Its share of the loss, in [0, 1]; None is 0.1 for zsr, 0.01 for xml."""
    ridge: Annotated[float, positive] = 0.05
    """Ridge of its closed-form fit."""
    zero_shot_scale: Annotated[float, positive] = 1.0
    """zsr: factor on its logits."""
    log_regularizer_share: bool = False
    """Note the regularizer's share of the gradient in the history."""
    histogram_inverse_temperature: Annotated[float, positive] = 10.0
    """zsr, xml without GSP: sharpness of the prototype histogram."""
    memory: Literal["none", "xbm"] = "none"
    """Compare with a memory of past embeddings as well."""
    memory_capacity: Annotated[int, positive] = 1024
    """Embeddings in it, a batch or more."""
    memory_warmup_steps: Annotated[int, not_negative] = 100
    """Steps before it is used."""
    ccp: Literal["off", "learned", "single", "on"] = "off"
    """Proxies for a pair loss as well: none; learned ones that start at random;
    ones that start from samples, of one problem or alternating."""
    proxies_per_class: Annotated[int, positive] = 1
    """Proxies (or soft-triple centers) per class."""
    ccp_pool_size: Annotated[int, positive] = 12
    """Samples per class among which the next proxies are chosen, as many as
    the proxies or more."""
    ccp_patience: Annotated[int, positive] = 3
    """Evaluations without a gain after which the next problem starts."""
    ccp_warmup: Annotated[int, not_negative] = 0
    """Evaluations before proxies start from samples, trained on pairs within
    the batch; a network from scratch needs some."""
    anchor_weight: Annotated[float, not_negative] = 2e-4
    """Pull of the weights towards the last problem's solution; 0 alternates
    proxies alone."""
    anchor_decay: Annotated[float, up_to_one] = 1.0
    """Factor on that pull from problem to problem, in (0, 1]."""
    ccp_pool: Literal["data", "recent"] = "data"
    """Samples embedded anew for every problem, or those that training has
    embedded last, nearly free; the first problem's are embedded anew."""
    in_batch_weight: Annotated[float | None, not_negative] = None
    """Weight of the ordinary pair loss beside the one against proxies or
    memory; None is 1."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Batches, steps, rates."""

    classes_per_batch: Annotated[int, positive] = 16
    """Classes in a batch."""
    samples_per_class: Annotated[int, positive] = 4
    """Images of each; pairs need 2."""
    batch_chunks: Annotated[int, positive] = 1
    """Parts in which a batch is embedded: one gradient, less memory."""
    steps: Annotated[int, not_negative] = 900
    """Training steps at most; 0 trains nothing: the backbone's own features,
    pooled by average and normalized, are scored."""
    steps_per_evaluation: Annotated[int, positive] = 100
    """Steps between two evaluations; divides `steps`."""
    patience: Annotated[int | None, positive] = None
    """Evaluations without a gain after which training stops; None: never."""
    chosen_by: Literal["map_at_r", "precision_at_1"] = "map_at_r"
    """Validation score that chooses the weights, ends problems and training,
    and lowers rates on a plateau."""
    warmup_steps: Annotated[int, not_negative] = 0
    """First steps, in which the backbone stays as it is."""
    learning_rate: Annotated[float, positive] = 1e-3
    """Learning rate of the network."""
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """How the rates go on: as they are, down to 0 in a cosine, or lower
    whenever the validation score stands still."""
    ramp_steps: Annotated[int, not_negative] = 0
    """First steps, in which the rates rise from 0."""
    fall_share: Annotated[float, up_to_one] = 1.0
    """cosine: last share of the steps, in which the rates fall, in (0, 1];
    before it they stay."""
    plateau_patience: Annotated[int, positive] = 4
    """plateau: evaluations without a gain before the rates are lowered."""
    plateau_factor: Annotated[float, up_to_one] = 0.5
    """plateau: what the rates are multiplied by."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """Adam with weight decay beside the gradient, times the rate (AdamW), or
    as a part of the gradient (coupled, as in the papers' code)."""
    weight_decay: Annotated[float, not_negative] = 1e-4
    """Weight decay."""
    clip_norm: Annotated[float | None, positive] = None
    """Largest norm of each weight's gradient; None clips nothing."""
    proxy_learning_rate_multiplier: Annotated[float, positive] = 100.0
    """How much faster proxies learn."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras dtype policy."""
    jit_compile: bool = False
    """Compile the training step with XLA."""
    seed: Annotated[int, not_negative] = 0
    """Seed of weights, batches and splits."""


SECTIONS = {
    "images": ImageSettings,
    "network": NetworkSettings,
    "losses": LossSettings,
    "methods": MethodSettings,
    "training": TrainingSettings,
}
"""The groups in which a command line shows the settings."""


@dataclass(frozen=True, kw_only=True)
class Recipe(
    TrainingSettings,
    MethodSettings,
    LossSettings,
    NetworkSettings,
    ImageSettings,
):
    """Settings of one training run; every field can be set on its own.

    Raises:
        ValueError: a word or number outside its range, or a combination that
            defines no objective.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        _check_combination(self)

    @property
    def uses_proxies(self) -> bool:
        """Whether the training classes have proxies."""
        return self.uses_proxy_loss or self.ccp != "off"

    @property
    def uses_proxy_loss(self) -> bool:
        """Whether the loss compares with proxies only."""
        return self.loss in PROXY_LOSSES

    @property
    def uses_pairs(self) -> bool:
        """Whether the loss compares samples with each other."""
        return self.loss in PAIR_LOSSES

    @property
    def samples_proxies(self) -> bool:
        """Whether proxies start from samples."""
        return self.ccp in ("single", "on")

    @property
    def batch_size(self) -> int:
        """Images in a training batch."""
        return self.classes_per_batch * self.samples_per_class

    @property
    def evaluations(self) -> int:
        """Evaluations of a run that is not stopped early."""
        return self.steps // self.steps_per_evaluation


def _check_combination(recipe):
    """Raises `ValueError` for fields that contradict each other."""
    _check_images(recipe)
    _check_batches(recipe)
    _check_methods(recipe)
    _check_evaluations(recipe)
    _check_begun(recipe)


def _check_images(recipe):
    require(
        recipe,
        "train_classes",
        recipe.train_classes is None or recipe.dataset in OWN_SPLITS,
        f"None with dataset={recipe.dataset}, whose split is published",
    )
    require(
        recipe,
        "images_per_class",
        recipe.images_per_class is None or recipe.dataset in CANVASES,
        f"None with dataset={recipe.dataset}",
    )
    require(
        recipe,
        "canvas_size",
        recipe.canvas_size is None or recipe.dataset in CANVASES,
        f"None with dataset={recipe.dataset}",
    )
    require(
        recipe,
        "validation_fold",
        recipe.validation_fold < recipe.validation_folds,
        f"in [0, validation_folds={recipe.validation_folds})",
    )
    require(
        recipe,
        "resize",
        recipe.resize is None
        or (recipe.crop_size is not None and recipe.resize >= recipe.crop_size),
        f"None or at least crop_size={recipe.crop_size}",
    )
    require(
        recipe,
        "cache_features",
        not recipe.cache_features
        or (recipe.frozen == "all" and recipe.augmentation == "none"),
        "False unless frozen=all and augmentation=none",
    )
    require(
        recipe,
        "cache_images",
        not recipe.cache_images
        or (
            recipe.augmentation == "none"
            and recipe.crop_size is not None
            and not recipe.cache_features
        ),
        "False unless augmentation=none, with a crop_size and without "
        "cache_features",
    )


def _check_batches(recipe):
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


def _check_methods(recipe):
    """What a loss, a memory, a miner and sampled proxies leave each other."""
    for name, off in (
        ("memory", "none"),
        ("ccp_warmup", 0),
    ):
        is_met = recipe.uses_pairs or getattr(recipe, name) == off
        require(recipe, name, is_met, f"{off} with loss={recipe.loss}")
    require(
        recipe,
        "ccp",
        not (recipe.uses_proxy_loss and recipe.ccp == "learned"),
        f"off, single or on with loss={recipe.loss}, whose proxies are learned "
        "anyway",
    )
    require(
        recipe,
        "ccp",
        recipe.loss not in CLASSIFIER_LOSSES or recipe.ccp == "off",
        f"off with loss={recipe.loss}, which has no proxies",
    )
    has_pairs = recipe.uses_pairs
    has_references = recipe.ccp != "off" or recipe.memory != "none"
    require(
        recipe,
        "in_batch_weight",
        recipe.in_batch_weight is None or (has_pairs and has_references),
        "None without a pair loss beside ccp or a memory",
    )
    require(
        recipe,
        "miner",
        recipe.miner == "none"
        or (has_pairs and recipe.loss not in LIST_LOSSES),
        f"none with loss={recipe.loss}",
    )
    require(
        recipe,
        "memory",
        recipe.memory == "none" or recipe.ccp == "off",
        f"`none` with ccp={recipe.ccp}",
    )
    require(
        recipe,
        "memory_capacity",
        recipe.memory == "none" or recipe.memory_capacity >= recipe.batch_size,
        f"{recipe.batch_size} or more, a batch of classes_per_batch * "
        "samples_per_class. Make it larger or the batch smaller",
    )
    require(
        recipe,
        "ccp_pool",
        recipe.ccp != "single" or recipe.ccp_pool == "data",
        "`data` with ccp=single, whose only problem has no recent samples. "
        "Set ccp=on to choose proxies from them",
    )
    require(
        recipe,
        "ccp_pool_size",
        not recipe.samples_proxies
        or recipe.ccp_pool_size >= recipe.proxies_per_class,
        f"proxies_per_class={recipe.proxies_per_class} or more, which are "
        "chosen among them. Make it larger or take fewer proxies",
    )
    default = Recipe.histogram_inverse_temperature
    require(
        recipe,
        "histogram_inverse_temperature",
        recipe.regularizer == "none"
        or recipe.pooling not in GSP_POOLINGS
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


def _check_begun(recipe):
    """What begins after some steps has to begin before the last one."""
    if recipe.steps == 0:
        return
    in_time = f"below steps={recipe.steps}, or"
    way_out = "Train longer or lower it"
    require(
        recipe,
        "memory_warmup_steps",
        recipe.memory == "none" or recipe.memory_warmup_steps < recipe.steps,
        f"{in_time} the memory is never used. {way_out}",
    )
    require(
        recipe,
        "warmup_steps",
        recipe.warmup_steps < recipe.steps,
        f"{in_time} the backbone never learns. {way_out}; frozen=all keeps it "
        "as it is",
    )
    require(
        recipe,
        "ccp_warmup",
        recipe.ccp != "single" or recipe.ccp_warmup < recipe.evaluations,
        f"below the {recipe.evaluations} evaluations, or no proxy is ever "
        f"sampled. {way_out}, or evaluate more often",
    )


def _check_evaluations(recipe):
    require(
        recipe,
        "steps",
        recipe.steps % recipe.steps_per_evaluation == 0,
        f"a multiple of steps_per_evaluation={recipe.steps_per_evaluation}",
    )
    # An evaluation per problem that improves, `ccp_patience` that do not, and
    # one of the second problem: fewer train one fixed set of proxies.
    needed = recipe.ccp_warmup + recipe.ccp_patience + 2
    require(
        recipe,
        "ccp",
        recipe.ccp != "on" or recipe.evaluations >= needed,
        f"`single` with {recipe.evaluations} evaluations: no second problem "
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
