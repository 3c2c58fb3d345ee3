"""The settings of a training run, in six groups, with the range of each."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

Dataset = Literal[
    "glyphs", "collage", "cub", "cars", "sop", "inshop", "folder", "csv"
]


@dataclass(frozen=True)
class Range:
    """Finite numbers that a field accepts, with their description."""

    text: str
    accepts: Callable[[float], bool]

    def __contains__(self, number: Any) -> bool:
        is_number = isinstance(number, int | float) and type(number) is not bool
        return is_number and math.isfinite(number) and self.accepts(number)


positive = Range("positive", lambda number: number > 0)
not_negative = Range("0 or more", lambda number: number >= 0)
up_to_one = Range("in (0, 1]", lambda number: 0 < number <= 1)
share = Range("in [0, 1]", lambda number: 0 <= number <= 1)
at_least_two = Range("2 or more", lambda number: number >= 2)
_hints = cache(partial(get_type_hints, include_extras=True))


def check_fields(record: Any) -> None:
    """Checks the words and the ranges of a dataclass's fields.

    `Annotated[float, positive]` is a number with its range, `Literal["a",
    "b"]` one of some words; None stands for itself.
    """
    kind: Any = type(record)
    for name, hint in _hints(kind).items():
        value, parts = getattr(record, name), get_args(hint)
        if value is None:
            continue
        if get_origin(hint) is Literal:
            require(record, name, value in parts, f"one of {', '.join(parts)}")
        for one in parts:
            if isinstance(one, Range):
                require(record, name, value in one, one.text)


def require(record: Any, name: str, is_met: bool, expectation: str) -> None:
    """Raises `ValueError` about a field of a record unless `is_met`."""
    if not is_met:
        raise ValueError(
            f"`{name}` must be {expectation}. "
            f"Received: {name}={getattr(record, name)}."
        )


def _arguments_of(words):
    """The dictionary of words like `beta=20`."""
    found = {}
    for name, is_given, text in (word.partition("=") for word in words):
        if not is_given:
            raise ValueError(f"must be like beta=20. Received: {name}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name] = tuple(value) if isinstance(value, list) else value
    return found


# Arguments of a class by name; on the command line `beta=20 alpha=2`.
Arguments = Annotated[
    dict[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME=VALUE",
        instance_from_str=_arguments_of,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda arguments: [
            f"{name}={json.dumps(value)}" for name, value in arguments.items()
        ],
    ),
]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Images, and how they are cropped."""

    dataset: Dataset = "glyphs"
    """Data set; all but `glyphs` are read from `data_dir`."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    train_classes: Annotated[int | None, positive] = None
    """folder, csv: number of training classes, drawn at random; None: half."""
    images_per_class: Annotated[int | None, positive] = None
    """collage: most images of a class; None: all."""
    canvas_size: Annotated[int | None, positive] = None
    """glyphs, collage: side of the canvas; None: 48, 64 pixels."""
    distractors: bool = True
    """glyphs, collage: place other pictures around each picture; without them
    scores are an upper bound."""
    corrupt_images: Literal["raise", "skip"] = "raise"
    """List unreadable files in one error, or leave them out."""
    decisions: str | None = None
    """folder, csv: file of images to drop and labels to change, as
    training.doctor --review saves it."""
    augmentation: Literal["none", "mlrc", "mlrc-area"] = "none"
    """Random crops and flips: sides of 40-256 pixels, or area 0.16-1."""
    crop_size: Annotated[int | None, positive] = None
    """Side of the square crop, pixels; None keeps images as they are."""
    resize: Annotated[int | None, positive] = None
    """Shorter side from which crops are cut, pixels; None: the crop's size,
    which keeps square images whole."""
    cache_images: bool = False
    """Keep cropped images in memory, without augmentation."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Backbone, pooling and embedding."""

    backbone: str = "glyph-cnn"
    """glyph-cnn, mobilenet-v2, resnet50, ..., or hub:PRESET of keras-hub."""
    backbone_width: Annotated[float, positive] = 0.35
    """mobilenet-v2: factor on its channels, alpha."""
    backbone_weights: str | None = None
    """Weights file, `imagenet` (downloaded) or `characters` (glyph-cnn, trained
    on single characters); None: random weights."""
    frozen: Literal["none", "batch-norm", "all"] = "none"
    """Part of the backbone that is not trained."""
    lora_rank: Annotated[int | None, positive] = None
    """Train low-rank factors of this rank in place of the backbone's weights,
    which are frozen; None: no LoRA."""
    cache_features: bool = False
    """Compute the frozen backbone's features once, without augmentation."""
    pooling: str = "gap"
    """gap, gmp, gem, gsp, or another of `gsp.layers`."""
    pooling_arguments: Arguments = field(default_factory=dict)
    """Arguments of its class that differ from the defaults: power=3."""
    projection_start: Literal["learned", "pca", "random"] = "random"
    """Start of the projection to `embedding_size`: learned whitening of the
    backbone's pooled features, with the shrinkage that is best on validation
    classes, their principal components, or at random."""
    num_prototypes: Annotated[int, positive] = 64
    """gsp, zsr, xml: number of prototypes."""
    prototype_start: Literal["data", "pooled", "random"] = "data"
    """Prototypes (otk: references) start from features of training images, by
    greedy k-center, or at random. `data` are local features, `pooled` the
    average of each image, as in the papers' code."""
    transport_ratio: Annotated[float, up_to_one] = 0.2
    """gsp: fraction of the features that is pooled, in (0, 1]."""
    inverse_temperature: Annotated[float, positive] = 10.0
    """gsp: sharpness of the selection."""
    embedding_size: Annotated[int, positive] = 128
    """Width of the embedding."""
    normalization: Literal["l2", "ball"] = "l2"
    """Embeddings on the unit sphere, or in the unit ball."""
    whitening: Literal["none", "pca", "learned"] = "none"
    """steps=0: whiten the backbone's features to `embedding_size`, fitted to
    the training images; `learned` uses their classes."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss."""

    loss: str = "c2"
    """c1, c2, triplet, ms, proxy-nca, or another of `gsp.losses`."""
    loss_arguments: Arguments = field(default_factory=dict)
    """Arguments of its class that differ from the defaults: beta=20."""
    matryoshka_size: Annotated[int | None, positive] = None
    """Add the loss on the first half of the embedding, of that half, ... down
    to this size; None: on the whole embedding only."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Additions to the loss: regularizer, memory, sampled proxies."""

    regularizer: Literal["none", "zsr", "xml"] = "none"
    """Zero-shot regularizer or cross-batch metric learning."""
    regularizer_weight: Annotated[float | None, share] = None
    """Its share of the loss, in [0, 1]; None: 0.1 for zsr, 0.01 for xml."""
    ridge: Annotated[float, positive] = 0.05
    """Ridge of its closed-form fit."""
    zero_shot_scale: Annotated[float, positive] = 1.0
    """zsr: factor on the logits."""
    log_regularizer_share: bool = False
    """Log the regularizer's share of the gradient."""
    histogram_inverse_temperature: Annotated[float, positive] = 10.0
    """zsr, xml without gsp: sharpness of the prototype histogram."""
    memory: Literal["none", "xbm"] = "none"
    """Compare with a memory of past embeddings too."""
    memory_capacity: Annotated[int, positive] = 1024
    """Embeddings in the memory, at least a batch."""
    memory_warmup_steps: Annotated[int, not_negative] = 100
    """Steps before the memory is used."""
    ccp: Literal["off", "learned", "single", "on"] = "off"
    """Proxies beside pairs: learned, from samples once, or alternating."""
    proxies_per_class: Annotated[int, positive] = 1
    """Proxies (soft-triple: centers) of a class."""
    center_weight: Annotated[float, not_negative] = 0.2
    """soft-triple: weight of the regularizer that merges centers, tau."""
    ccp_pool_size: Annotated[int, positive] = 12
    """Samples of a class from which proxies are chosen."""
    ccp_patience: Annotated[int, positive] = 3
    """Evaluations without a gain before the next problem starts."""
    ccp_warmup: Annotated[int, not_negative] = 0
    """Evaluations before the first problem; a network with random weights
    needs some."""
    anchor_weight: Annotated[float, not_negative] = 2e-4
    """Pull of the weights towards the last problem's solution."""
    in_batch_weight: Annotated[float | None, not_negative] = None
    """Weight of the loss within the batch beside the one against sampled
    proxies (None: 0.1) or memory (None: 1)."""


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """Batches, steps, rates."""

    classes_per_batch: Annotated[int, positive] = 16
    """Classes in a batch."""
    samples_per_class: Annotated[int, positive] = 4
    """Images of each class; pair losses need 2."""
    batch_chunks: Annotated[int, positive] = 1
    """Parts in which a batch is embedded: same gradient, less memory."""
    steps: Annotated[int, not_negative] = 900
    """Training steps; 0 scores the backbone's own features, pooled."""
    warmup_steps: Annotated[int, not_negative] = 0
    """First steps, in which the backbone is not trained."""
    learning_rate: Annotated[float, positive] = 1e-3
    """Learning rate of the network."""
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """Constant rates, a cosine down to 0, or lower rates whenever the
    validation score does not improve."""
    ramp_steps: Annotated[int, not_negative] = 0
    """First steps, in which rates rise from 0."""
    fall_share: Annotated[float, up_to_one] = 1.0
    """cosine: last share of the steps, in which rates fall, in (0, 1]."""
    plateau_patience: Annotated[int, positive] = 4
    """plateau: evaluations without a gain before rates are lowered."""
    plateau_factor: Annotated[float, up_to_one] = 0.5
    """plateau: factor on the rates."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """Decoupled weight decay (AdamW), or decay inside the gradient (as in the
    papers' code)."""
    weight_decay: Annotated[float, not_negative] = 1e-4
    """Weight decay."""
    clip_norm: Annotated[float | None, positive] = None
    """Largest norm of the gradient of all weights together (of proxies with
    their own rate: together too); None: no clipping."""
    backbone_learning_rate_multiplier: Annotated[float, up_to_one] = 1.0
    """Factor on the learning rate of the backbone, in (0, 1]."""
    proxy_learning_rate_multiplier: Annotated[float, positive] = 100.0
    """Factor on the learning rate of proxies."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras dtype policy."""
    jit_compile: bool = False
    """Compile the training step with XLA."""
    seed: Annotated[int, not_negative] = 0
    """Seed of weights, batches and splits."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Validation, and the choice of the weights."""

    steps_per_evaluation: Annotated[int, positive] = 100
    """Steps between two evaluations; divides `steps`, or exceeds it."""
    evaluation_classes: Annotated[int | None, at_least_two] = None
    """Validation classes that an evaluation scores, drawn once; None: all."""
    patience: Annotated[int | None, positive] = None
    """Evaluations without a gain before training stops; None: never."""
    chosen_by: Literal["map_at_r", "precision_at_1"] = "map_at_r"
    """Validation score that chooses weights and lowers rates."""
    validation_folds: Annotated[int, at_least_two] = 4
    """Data sets without validation classes: one fold of so many validates."""
    validation_fold: Annotated[int, not_negative] = 0
    """Which fold, in [0, validation_folds)."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a training run, in groups."""

    data: Data = Data()
    encoder: Encoder = Encoder()
    objective: Objective = Objective()
    method: Method = Method()
    optimization: Optimization = Optimization()
    evaluation: Evaluation = Evaluation()


GROUPS = get_type_hints(Settings)
