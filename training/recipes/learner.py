"""The compiled learner of a recipe: losses, layers, optimizer, start."""

import math
import warnings
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import keras
import numpy as np
from keras import ops

import keras_gsp as gsp
from keras_gsp._labeled_batches import batches_of, encoded
from keras_gsp._processes import predictor
from keras_gsp.data import ImageSet
from keras_gsp.models.encoder import features_before
from training.recipes.batches import evaluation_batches, training_batches
from training.recipes.choices import made, make_loss
from training.recipes.encoder import build_recipe_encoder
from training.recipes.recipe import Recipe

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
    if recipe.embedding_size > min(channels, count - 1):
        warnings.warn(
            f"The projection starts at random: embedding_size="
            f"{recipe.embedding_size} is more than the directions of "
            f"{channels} features of {count} images.",
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
    rates, base = {}, recipe.learning_rate
    if recipe.uses_proxies:
        factor = recipe.proxy_learning_rate_multiplier
        rates["proxies"] = _rate(recipe, base * factor)
    factor = recipe.backbone_learning_rate_multiplier
    if recipe.warmup_steps or factor != 1:
        rate = _rate(recipe, base)
        paths = [variable.path for variable in learner.trainable_variables]
        head = [path for path in paths if path.split("/")[0] in HEAD]
        rates |= dict.fromkeys(head, rate)
    rate = _rate(recipe, base * factor, hold=recipe.warmup_steps)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=1e-4)
    if rates:
        return gsp.models.proxy_optimizer(learner, optimizer, rates)
    return optimizer


def _rate(recipe, peak, hold=0):
    if not (recipe.fall_share or hold or recipe.ramp_steps):
        return peak
    if not recipe.fall_share:
        return Rate(peak, hold, recipe.ramp_steps)
    length = max(1, round(recipe.steps * recipe.fall_share))
    start = recipe.steps - length
    return Rate(peak, hold, recipe.ramp_steps, recipe.steps, start)
