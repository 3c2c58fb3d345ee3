"""Everything that defines a training run, in one flat record."""

from dataclasses import dataclass
from typing import Literal, get_args

from training.recipes.ranges import check_recipe

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
Pooling = Literal["gap", "gmp", "gem", "gsp", "gem-gsp"]
PairLossName = Literal["c1", "c2", "triplet", "ms"]
ProxyLossName = Literal["proxy-nca", "proxy-anchor", "soft-triple"]
PAIR_LOSSES = get_args(PairLossName)
PROXY_LOSSES = get_args(ProxyLossName)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of one training run; every field can be set on its own.

    Raises:
        ValueError: a word or number outside its range, or a combination that
            defines no objective.
    """

    dataset: Dataset = "glyphs"
    """Images to learn from; all but `glyphs` are read from `data_dir`."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    source: Literal["disk", "tfds"] = "disk"
    """Original layout, or prepared by TensorFlow Datasets in `data_dir`."""
    train_classes: int | None = None
    """folder, csv: classes to learn from, drawn at random; None is half."""
    images_per_class: int | None = None
    """collage: at most so many images of each class; None is all."""
    corrupt_images: Literal["raise", "skip"] = "raise"
    """Name unreadable files in one error, or leave them out."""
    protocol: Literal["single", "fair", "conventional"] = "single"
    """One model chosen on validation classes; the fair protocol of 4 folds;
    or the conventional one, which chooses on the test classes."""
    repeats: int = 3
    """How often each model of the other two protocols is trained."""
    validation_folds: int = 4
    """Where a data set has no validation classes, 1 training fold in so
    many serves."""
    validation_fold: int = 0
    """Which fold that is, in [0, validation_folds)."""
    augmentation: Literal["none", "mlrc", "mlrc-area"] = "none"
    """Random crops and flips: sides of 40-256 pixels, or area 0.16-1."""
    crop_size: int | None = None
    """Side of the square that images are cropped to, pixels; None keeps
    them as they are."""

    backbone: Backbone = "glyph-cnn"
    """Network from images to a feature map."""
    backbone_weights: str | None = None
    """Weights file, or `imagenet` (downloaded); None trains from scratch."""
    frozen: Literal["none", "batch-norm", "all"] = "none"
    """Which part of the backbone stays as it is."""
    cache_features: bool = False
    """Compute the frozen backbone's features once, without augmentation."""
    pooling: Pooling = "gap"
    """Average, max, generalised mean, generalised sum, or the last two."""
    num_prototypes: int = 64
    """Prototypes of GSP, ZSR and XML."""
    transport_ratio: float = 0.2
    """Fraction of the features that GSP pools, in (0, 1]."""
    inverse_temperature: float = 10.0
    """Sharpness of GSP's selection."""
    power: float = 3.0
    """Exponent of the generalised mean, above 1."""
    embedding_size: int = 128
    """Width of the embedding."""
    normalization: Literal["l2", "ball"] = "l2"
    """Embeddings on the unit sphere, or in the unit ball."""

    loss: PairLossName | ProxyLossName = "c2"
    """Contrastive (Euclidean c2, cosine c1), triplet, multi-similarity, or
    a proxy loss."""
    positive_margin: float = 0.0
    """c2: distance below which a positive pair costs nothing."""
    negative_margin: float = 0.5
    """c2: distance above which a negative pair costs nothing."""
    cosine_margin: float = 0.5
    """c1: cosine below which a negative pair costs nothing."""
    triplet_margin: float = 0.05
    """triplet: by how much negatives have to be further away."""
    ms_alpha: float = 2.0
    """ms: sharpness on positive pairs."""
    ms_beta: float = 40.0
    """ms: sharpness on negative pairs."""
    ms_base: float = 0.5
    """ms: cosine that separates the two."""
    ms_mining_margin: float | None = None
    """ms: margin of the original's miner (0.1 there); None mines nothing."""
    proxy_temperature: float = 0.11
    """proxy-nca: cosines are divided by it."""
    anchor_margin: float = 0.1
    """proxy-anchor: cosine margin."""
    anchor_alpha: float = 32.0
    """proxy-anchor: sharpness."""
    soft_triple_scale: float = 20.0
    """soft-triple: factor on similarities."""
    soft_triple_gamma: float = 0.1
    """soft-triple: temperature between the centres of one class."""
    soft_triple_margin: float = 0.01
    """soft-triple: cosine margin."""
    soft_triple_tau: float = 0.2
    """soft-triple: weight of the centre regulariser."""

    regularizer: Literal["none", "zsr", "xml"] = "none"
    """Zero-shot regulariser or cross-batch metric learning."""
    regularizer_weight: float | None = None
    """Its share of the loss, in [0, 1]; None is 0.1 for zsr, 0.01 for xml."""
    ridge: float = 0.05
    """Ridge of its closed-form fit."""
    zero_shot_scale: float = 1.0
    """zsr: factor on its logits."""
    histogram_inverse_temperature: float = 10.0
    """xml: sharpness of the prototype histogram."""
    memory: Literal["none", "xbm"] = "none"
    """Compare with a memory of past embeddings as well."""
    memory_capacity: int = 1024
    """Embeddings in it."""
    memory_warmup_steps: int = 100
    """Steps before it is used."""
    ccp: Literal["off", "single", "on"] = "off"
    """Proxies that start from samples, for a pair loss as well: none, those
    of one problem, or alternating ones."""
    proxies_per_class: int = 1
    """Proxies (or soft-triple centres) per class."""
    ccp_pool_size: int = 12
    """Samples per class among which the next proxies are chosen."""
    ccp_patience: int = 3
    """Evaluations without a gain after which the next problem starts."""
    ccp_warmup: int = 0
    """Evaluations before proxies start from samples, trained on pairs within
    the batch; a network from scratch needs some."""
    anchor_weight: float = 2e-4
    """Pull of the weights towards the last problem's solution."""
    anchor_decay: float = 1.0
    """Factor on that pull from problem to problem, in (0, 1]."""
    in_batch_weight: float = 0.0
    """Weight of the ordinary pair loss beside the one against proxies."""

    classes_per_batch: int = 16
    """Classes in a batch."""
    samples_per_class: int = 4
    """Images of each."""
    steps: int = 900
    """Training steps at most."""
    steps_per_evaluation: int = 100
    """Steps between two evaluations; divides `steps`."""
    patience: int | None = None
    """Evaluations without a gain after which training stops; None: never."""
    warmup_steps: int = 0
    """First steps, in which the backbone stays as it is."""
    learning_rate: float = 1e-3
    """Learning rate of AdamW."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    proxy_learning_rate_multiplier: float = 100.0
    """How much faster proxies learn."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras dtype policy."""
    jit_compile: bool = False
    """Compile the training step with XLA."""
    seed: int = 0
    """Seed of weights, batches and splits."""

    def __post_init__(self):
        check_recipe(self)

    @property
    def uses_proxies(self) -> bool:
        """Whether the training classes have proxies."""
        return self.uses_proxy_loss or self.ccp != "off"

    @property
    def uses_proxy_loss(self) -> bool:
        """Whether the loss compares with proxies only."""
        return self.loss in PROXY_LOSSES

    @property
    def batch_size(self) -> int:
        """Images in a training batch."""
        return self.classes_per_batch * self.samples_per_class
