"""The compiled learner of a recipe: encoder, losses, optimizer, start."""

import math
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import h5py
import keras
import numpy as np
from keras import ops

import keras_gsp as gsp
from keras_gsp._compat import layers_at_any_depth
from keras_gsp._encoding import input_of
from keras_gsp._labeled_batches import batches_of, encoded
from keras_gsp._processes import predictor
from keras_gsp.data import ImageSet
from keras_gsp.models.encoder import features_before
from training.recipes.batches import (
    evaluation_batches,
    preprocessing_of,
    training_batches,
)
from training.recipes.choices import (
    DIVIDED,
    FEW,
    is_gsp,
    made,
    make_loss,
    make_pooling,
)
from training.recipes.depthwise import use_products
from training.recipes.glyph_network import (
    CHARACTERS,
    PIXELS,
    character_weights,
    glyph_network,
)
from training.recipes.hub_backbone import build_hub_network
from training.recipes.recipe import LAST_STAGES, Recipe

# Of MobileNetV2's weights for ImageNet.
WIDTHS = 0.35, 0.5, 0.75, 1.0, 1.3, 1.4
# Minus the mean of ImageNet: blue, green, red.
RESNET_OFFSET = (-103.939, -116.779, -123.68)
# Share of the mean variance: 0.3 gains on birds, characters and emoji, see
# docs/results/whitening.md; each has a better one of its own.
SHRINKAGE = 0.3
# Training batches from which statistics and prototypes start, how many images
# of each update the statistics, and at most how many start the projection.
START_BATCHES, SETTLED, PROJECTED = 32, 64, 2048

# First parts of the paths of weights after the backbone, without proxies.
HEAD = ("projection", "pooling", "histogram", "class_embeddings")


def build_learner(
    recipe: Recipe, *, num_classes: int, image_shape: tuple
) -> Any:
    """Compiles the learner of a recipe; sets Keras's seed."""
    keras.utils.set_random_seed(recipe.seed)
    encoder = build_recipe_encoder(recipe, image_shape)
    has_regularizer = recipe.regularizer != "none"
    # The papers' shares of the loss.
    share = 0.01 if recipe.regularizer == "xml" else 0.1
    pull = recipe.ccp_arguments.get("anchor_weight", 2e-4)
    learner = gsp.models.MetricLearner(
        encoder,
        **_layers(recipe, num_classes),
        regularizer=build_regularizer(recipe),
        regularizer_weight=recipe.regularizer_arguments.get("weight", share),
        anchor_weight=pull if recipe.samples_proxies else None,
        in_batch_weight=recipe.in_batch_weight,
        seed=recipe.seed,
        log_regularizer_share=has_regularizer
        and keras.backend.backend() == "tensorflow",
    )
    loss = build_loss(recipe)
    if recipe.matryoshka_size is not None:
        loss = gsp.losses.MatryoshkaLoss(loss, recipe.matryoshka_sizes)
    learner.compile(
        optimizer=build_optimizer(recipe, learner),
        loss=loss,
        # XLA of TensorFlow compiles for minutes on a CPU.
        jit_compile=keras.backend.backend() == "jax",
    )
    return learner


def _layers(recipe, num_classes):
    """Returns the layers beside the encoder that a recipe needs."""
    found: dict[str, Any] = {}
    if recipe.uses_proxies:
        regularizer = None
        if recipe.loss == "soft-triple":
            regularizer = gsp.losses.CenterRegularizer()
        found["proxies"] = gsp.layers.ClassProxies(
            num_classes,
            proxies_per_class=recipe.proxies_per_class,
            proxies_regularizer=regularizer,
            name="class_proxies",
        )
    if recipe.memory:
        arguments = {"capacity": 1024, "warmup_steps": 100} | recipe.memory
        found["memory"] = made(gsp.layers.EmbeddingMemory, arguments)
    if recipe.regularizer == "zsr":
        found["class_embeddings"] = gsp.layers.ClassEmbeddings(
            num_classes, recipe.embedding_size, name="class_embeddings"
        )
    return found


def build_loss(recipe: Recipe) -> Any:
    """Returns the loss of a recipe."""
    chosen = dict(recipe.loss_arguments)
    if recipe.uses_pairs:
        chosen["normalization"] = recipe.normalization
    return make_loss(recipe.loss, **chosen)


def build_regularizer(recipe: Recipe) -> Any:
    """Returns the zero-shot or cross-batch loss of a recipe, or None."""
    arguments = {"seed": recipe.seed} | recipe.regularizer_arguments
    arguments.pop("weight", None)
    if recipe.regularizer == "zsr":
        return made(gsp.losses.ZeroShotLoss, arguments)
    if recipe.regularizer == "xml":
        arguments["pair_loss"] = build_loss(recipe)
        return made(gsp.losses.CrossBatchLoss, arguments)
    return None


def start_from_data(
    recipe: Recipe,
    learner: Any,
    images: ImageSet,
    shrinkage: float | None = None,
) -> None:
    """Starts statistics, projection and prototypes from training images.

    `shrinkage` is that of a projection which starts from learned whitening.
    """

    def batches():
        every = batches_of(training_batches(recipe, images))
        return islice(every, START_BATCHES)

    settle_statistics(recipe, learner, batches())
    initialize_projection(recipe, learner, images, shrinkage)
    start_prototypes(recipe, learner, batches())
    if not recipe.steps and recipe.projection_start == "learned":
        layer = learner.encoder.get_layer("whitening")
        features = features_before(learner.encoder, layer)
        if shrinkage is not None:
            layer.shrinkage = shrinkage
        layer.adapt(*encoded(features, evaluation_batches(recipe, images)))


def fitted_images(images: ImageSet) -> ImageSet:
    """Returns the images that closed forms are fitted to, some of each class.

    Eight of each class, then eight more, until they are `PROJECTED`.
    """
    order = np.argsort(images.labels, kind="stable")
    counts = np.bincount(images.labels)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    rounds = (np.arange(len(images)) - starts) // 8
    turns = np.random.default_rng(0).permutation(len(counts))
    drawn = order[np.lexsort((turns[images.labels[order]], rounds))]
    return images.subset(np.sort(drawn[:PROJECTED]))


def initialize_projection(
    recipe: Recipe,
    learner: Any,
    images: ImageSet,
    shrinkage: float | None = None,
) -> None:
    """Starts the projection from pooled features, as the recipe says.

    It stays random, with a warning, where these are fewer than its outputs.
    """
    layers = {layer.name: layer for layer in learner.encoder.layers}
    layer = layers.get("projection")
    if layer is None or recipe.projection_start == "random":
        return
    images = fitted_images(images)
    count, channels = len(images), layer.kernel.shape[-2]
    if recipe.embedding_size > (most := min(channels, count - 1)):
        warnings.warn(
            f"The projection starts at random: embedding_size="
            f"{recipe.embedding_size} is more than the {most} directions of "
            f"{channels} features of {count} images. Give at most {most}.",
            stacklevel=2,
        )
        return
    gsp.models.initialize_projection(
        learner.encoder,
        evaluation_batches(recipe, images),
        shrinkage=shrinkage,
        seed=recipe.seed,
    )


def settle_statistics(recipe: Recipe, learner: Any, batches: Any) -> None:
    """Updates batch normalization with training images before the first step.

    Or validation would score another network than the trained one, and
    prototypes start from wrong features. With a weights file only statistics
    of the pooling are updated; on JAX, where several processes may hold a part
    of the network each, none.
    """
    if keras.backend.backend() != "tensorflow":
        return
    settled, before = learner.encoder, None
    if recipe.backbone_weights is not None or recipe.cache_features:
        settled = settled.get_layer("pooling")
        before = predictor(features_before(learner.encoder, settled))
    if not any("moving" in v.name for v in settled.non_trainable_variables):
        return
    for images, _ in batches:
        # A batch of many chunks would not fit as a whole.
        inputs = images[:SETTLED]
        settled(inputs if before is None else before(inputs), training=True)


def start_prototypes(recipe: Recipe, learner: Any, batches: Any) -> None:
    """Starts prototypes, or references, from features of images."""
    layers = {layer.name: layer for layer in learner.encoder.layers}
    layer = layers.get("histogram") or layers["pooling"]
    if hasattr(layer, "adapt"):
        predict = predictor(features_before(learner.encoder, layer))
        features = [predict(images) for images, _ in batches]
        layer.adapt(np.concatenate(features), seed=recipe.seed)


@keras.saving.register_keras_serializable(package="keras_gsp.training")
@dataclass(eq=False)
class Rate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is held at 0, rises, and falls in a cosine.

    `peak` after `hold` steps at 0 and `ramp` steps of a linear rise; the fall
    to 0 begins at step `fall_start` and ends at `fall` (None: no fall).
    """

    peak: float
    hold: int = 0
    ramp: int = 0
    fall: int | None = None
    fall_start: int = 0

    def __call__(self, step: Any) -> Any:
        """Returns the rate at a step."""
        step = ops.cast(step, "float32")
        risen = ops.clip((step + 1 - self.hold) / max(self.ramp, 1), 0.0, 1.0)
        rate = self.peak * risen
        if self.fall is not None:
            length = self.fall - self.fall_start
            share = ops.clip((step - self.fall_start) / length, 0.0, 1.0)
            rate = rate * 0.5 * (1.0 + ops.cos(math.pi * share))
        return rate

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return asdict(self)


def build_optimizer(recipe: Recipe, learner: Any) -> Any:
    """Returns the optimizer of a recipe for a built learner."""
    optimizers: dict[str, Any] = {}
    base = recipe.learning_rate
    if recipe.uses_proxies:
        factor = recipe.proxy_learning_rate_multiplier
        optimizers[".*/proxies"] = _adam(_rate(recipe, base * factor))
    factor = recipe.backbone_learning_rate_multiplier
    if recipe.warmup_steps or factor != 1:
        paths = [variable.path for variable in learner.trainable_variables]
        head = [path for path in paths if path.split("/")[0] in HEAD]
        optimizers |= dict.fromkeys(head, _adam(_rate(recipe, base)))
    rate = _rate(recipe, base * factor, hold=recipe.warmup_steps)
    if not optimizers:
        return _adam(rate)
    return keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(_adam(rate), optimizers)
    )


def _adam(rate):
    return keras.optimizers.AdamW(rate, weight_decay=1e-4)


def _rate(recipe, peak, hold=0):
    if not (recipe.fall_share or hold or recipe.ramp_steps):
        return peak
    if not recipe.fall_share:
        return Rate(peak, hold, recipe.ramp_steps)
    length = max(1, round(recipe.steps * recipe.fall_share))
    start = recipe.steps - length
    return Rate(peak, hold, recipe.ramp_steps, recipe.steps, start)


def build_recipe_encoder(recipe: Recipe, image_shape: tuple) -> Any:
    """Builds the encoder of a recipe, untrained, for uint8 images.

    Without steps it pools the backbone's own features, perhaps whitened.
    """
    backbone = build_backbone(recipe, image_shape)
    if recipe.steps:
        return build_head(recipe, backbone)
    raw = gsp.models.build_encoder(
        backbone,
        embedding_size=None,
        pooling=build_pooling(recipe.with_(regularizer="none")),
        preprocessing=preprocessing_of(recipe),
    )
    if recipe.projection_start == "random":
        return raw
    whitening = gsp.layers.Whitening(
        recipe.embedding_size,
        shrinkage=SHRINKAGE,
        normalization=recipe.normalization,
        name="whitening",
    )
    return keras.Model(input_of(raw), whitening(raw.output), name="encoder")


def build_head(recipe: Recipe, backbone: keras.Model) -> keras.Model:
    """Puts projection, pooling and normalization of a recipe on a backbone."""
    histogram = None
    if recipe.regularizer != "none" and not is_gsp(recipe.pooling):
        histogram = gsp.layers.PrototypeHistogram(
            recipe.num_prototypes, name="histogram"
        )
    return gsp.models.build_encoder(
        backbone,
        embedding_size=recipe.embedding_size,
        pooling=build_pooling(recipe),
        normalization=recipe.normalization,
        histogram=histogram,
        preprocessing=preprocessing_of(recipe),
        lora_rank=recipe.lora_rank,
    )


def build_pooling(recipe: Recipe) -> keras.layers.Layer:
    """Returns the pooling layer, with GSP's histogram for a regularizer."""
    word = recipe.pooling
    chosen = dict(recipe.pooling_arguments)
    if is_gsp(word):
        shared = "num_prototypes", "transport_ratio", "inverse_temperature"
        chosen |= {name: getattr(recipe, name) for name in shared}
        chosen["return_histogram"] = recipe.regularizer != "none"
    if word in DIVIDED:
        size = max(1, recipe.embedding_size // FEW)
        chosen = {"projection_size": size} | chosen
    return make_pooling(word, name="pooling", **chosen)


def build_backbone(recipe: Recipe, image_shape: tuple) -> Any:
    """Returns the model from uint8 images, or cached features, to a map."""
    if not recipe.cache_features:
        images, features, stage = cut_backbone(recipe, image_shape)
        return keras.Model(images, stage(features), name="backbone")
    features = found = keras.Input(image_shape, name="features")
    if recipe.frozen == "trunk":
        side = recipe.crop_size
        *_, stage = cut_backbone(recipe, (side, side, 3))
        found = stage(RandomView(stage.input.shape[-1])(features))
    return keras.Model(features, found, name="cached_backbone")


def cut_backbone(recipe: Recipe, image_shape: tuple) -> Any:
    """Returns uint8 images, the features that are cached, and what follows."""
    images = keras.Input(image_shape, dtype="uint8", name="image")
    pixels = keras.layers.Rescaling(1.0, name="to_float")(images)
    network, pixels = _network(recipe, image_shape, pixels)
    if recipe.frozen == "all":
        network.trainable = False
    if recipe.frozen in ("batch-norm", "trunk"):
        for layer in layers_at_any_depth(network):
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.trainable = False
    if recipe.frozen != "trunk":
        return images, network(pixels), lambda features: features
    cut = network.get_layer(LAST_STAGES[recipe.backbone.partition("@")[0]])
    trunk = keras.Model(network.input, cut.output, name="trunk")
    trunk.trainable = False
    stage = keras.Model(cut.output, network.output, name="last_stage")
    return images, trunk(pixels), stage


@keras.saving.register_keras_serializable(package="keras_gsp.training")
class RandomView(keras.layers.Layer):
    """Takes one of several views of an image, in training at random.

    Maps (batch, rows, columns, views * channels) become (batch, rows, columns,
    channels): the first view, which is the whole image, or in training one of
    the others, if there are any.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(name="view")
        self.channels = channels
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Takes a view of each image."""
        count = inputs.shape[-1] // self.channels
        if not training or count == 1:
            return inputs[..., : self.channels]
        views = ops.reshape(inputs, (*ops.shape(inputs)[:-1], count, -1))
        chosen = keras.random.randint(
            (ops.shape(inputs)[0],), 1, count, seed=self.seed_generator
        )
        chosen = ops.reshape(chosen, (-1, 1, 1, 1, 1))
        return ops.take_along_axis(views, chosen, axis=-2)[..., 0, :]


def _network(recipe, image_shape, pixels):
    """Returns the network with its weights, and pixels in its range."""
    weights = recipe.backbone_weights
    name, _, width = recipe.backbone.partition("@")
    if recipe.hub_preset:
        network, scaling = build_hub_network(recipe.hub_preset, image_shape)
        side = network.input.shape[1:3]
        if side != tuple(image_shape[:2]):
            pixels = keras.layers.Resizing(*side, name="to_preset")(pixels)
        return _filled(network, weights), scaling(pixels)
    if name == "bn-inception":
        network = gsp.models.bn_inception(image_shape)
        if weights is not None:
            gsp.models.load_bn_inception_weights(network, weights)
        return network, pixels
    build: Any
    if name == "mobilenet-v2":
        alpha = float(width) if width else width_of(weights)
        build = partial(keras.applications.MobileNetV2, alpha=alpha)
        network = _application(build, image_shape, weights)
        if keras.backend.backend() == "jax":
            use_products(network)
        scaling = keras.layers.Rescaling(1 / 127.5, -1.0)
        return network, scaling(pixels)
    if name == "resnet50":
        build = keras.applications.ResNet50
        scaling = keras.layers.Rescaling(1.0, RESNET_OFFSET)
        pixels = scaling(keras.ops.flip(pixels, axis=-1))
        return _application(build, image_shape, weights), pixels
    if weights == CHARACTERS:
        weights = character_weights(name)
    network = _filled(glyph_network(image_shape, name), weights)
    return network, keras.layers.Rescaling(**PIXELS)(pixels)


def width_of(weights: str | None) -> float:
    """Returns the factor on MobileNetV2's channels that a weights file has.

    Its last convolution takes 320 channels times this factor to the most.
    """
    if weights in (None, "imagenet"):
        return 1.0
    shapes = []

    def visit(name, entry):
        if len(getattr(entry, "shape", ())) == 4:
            shapes.append(entry.shape)

    try:
        with h5py.File(weights) as file:
            file.visititems(visit)
    except OSError:  # Loading the file says what is wrong with it.
        return 1.0
    channels = max(shapes, key=lambda shape: shape[-1], default=(0, 0, 320))[2]
    return min(WIDTHS, key=lambda width: abs(320 * width - channels))


def fetch_imagenet_weights(recipe: Recipe) -> None:
    """Downloads the ImageNet weights of a backbone, if necessary."""
    if recipe.backbone.partition("@")[0] not in ("mobilenet-v2", "resnet50"):
        raise ValueError(
            "`backbone_weights` must name a file with backbone="
            f"{recipe.backbone}: Keras has ImageNet weights for mobilenet-v2 "
            "and resnet50. Received: backbone_weights=imagenet."
        )
    side = recipe.crop_size or 224
    _network(recipe, (side, side, 3), keras.Input((side, side, 3)))


def _application(build, image_shape, weights):
    build = partial(build, input_shape=image_shape, include_top=False)
    if weights != "imagenet":
        return _filled(build(weights=None), weights)
    try:
        return build()
    except Exception as error:
        # Keras raises a plain `Exception` for a failed download.
        if "URL fetch failure" not in str(error):
            raise
        raise ConnectionError(
            "`backbone_weights` must be a file where Keras cannot download "
            "ImageNet's: --backbone-weights FILE. Fetch it on another machine "
            "with keras.applications, include_top=False. Received: "
            f"backbone_weights=imagenet, {error}"
        ) from error


def _filled(network, weights):
    if weights is None:
        return network
    # Keras warns of each layer that a wrong file does not fill.
    with warnings.catch_warnings(record=True) as notes:
        try:
            network.load_weights(weights)
        except ValueError as error:
            raise ValueError(
                "`backbone_weights` must be those of the backbone, of its "
                "width too and without its top. Received: "
                f"{weights}, which does not fit {network.name}."
            ) from error
    for note in notes:
        warnings.warn(note.message, note.category, stacklevel=2)
    return network
