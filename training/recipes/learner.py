"""The compiled learner of a recipe."""

from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.embeddings.labeled_batches import encoded
from keras_gsp.embeddings.processes import predictor
from keras_gsp.models.encoder import features_before
from training.recipes.choices import losses
from training.recipes.encoder import build_recipe_encoder
from training.recipes.optimizer import build_optimizer
from training.recipes.recipe import Recipe

# The papers' shares of the loss.
REGULARIZER_WEIGHTS = {"none": 0.0, "zsr": 0.1, "xml": 0.01}
# Training batches from which statistics and prototypes start, and how many
# images of each update the statistics.
START_BATCHES, SETTLED = 32, 64


def build_learner(
    recipe: Recipe, *, num_classes: int, image_shape: tuple
) -> Any:
    """Builds and compiles the `gsp.models.MetricLearner` of a recipe.

    Sets Keras's seed and dtype policy: the same recipe, the same initial
    weights. `image_shape` is (height, width, 3) of the uint8 images.
    """
    keras.utils.set_random_seed(recipe.seed)
    keras.config.set_dtype_policy(recipe.precision)
    encoder = build_recipe_encoder(recipe, image_shape)
    weight = recipe.regularizer_weight
    if weight is None:
        weight = REGULARIZER_WEIGHTS[recipe.regularizer]
    learner = gsp.models.MetricLearner(
        encoder,
        **_layers(recipe, num_classes),
        regularizer=build_regularizer(recipe),
        regularizer_weight=weight,
        anchor_weight=recipe.anchor_weight if recipe.samples_proxies else None,
        anchor_decay=recipe.anchor_decay,
        in_batch_weight=recipe.in_batch_weight,
        seed=recipe.seed,
        batch_chunks=recipe.batch_chunks,
        log_regularizer_share=recipe.log_regularizer_share,
    )
    loss = build_loss(recipe)
    if recipe.teacher is not None:
        arguments: dict[str, dict[str, Any]] = {
            "metric": {"loss": loss},
            "regression": {"regression": 1.0, "relational": 0.0},
            "relational": {"regression": 0.0, "relational": 1.0},
        }
        chosen = arguments[recipe.distillation]
        loss = gsp.losses.DistillationLoss(**chosen)
    if recipe.matryoshka_size is not None:
        loss = gsp.losses.Matryoshka(loss, recipe.matryoshka_sizes)
    learner.compile(
        optimizer=build_optimizer(recipe, learner),
        loss=loss,
        jit_compile=recipe.jit_compile,
    )
    return learner


def _layers(recipe, num_classes):
    """Returns the layers beside the encoder that a recipe needs."""
    found: dict[str, Any] = {}
    if recipe.uses_proxies:
        regularizer = None
        if recipe.loss == "soft-triple":
            regularizer = gsp.losses.CenterRegularizer(recipe.center_weight)
        found["proxies"] = gsp.layers.ClassProxies(
            num_classes,
            proxies_per_class=recipe.proxies_per_class,
            proxies_regularizer=regularizer,
            name="class_proxies",
        )
    if recipe.memory != "none":
        found["memory"] = gsp.layers.EmbeddingMemory(
            recipe.memory_capacity, warmup_steps=recipe.memory_warmup_steps
        )
    if recipe.regularizer == "zsr":
        found["class_embeddings"] = gsp.layers.ClassEmbeddings(
            num_classes, recipe.embedding_size, name="class_embeddings"
        )
    if recipe.uses_recent_samples:
        # About a pool of samples of each class.
        capacity = num_classes * recipe.ccp_pool_size
        found["recent"] = gsp.layers.EmbeddingMemory(
            max(capacity, recipe.batch_size)
        )
    found["loss_layer"] = build_loss_layer(recipe, num_classes)
    return found


def build_loss(recipe: Recipe) -> Any:
    """Returns the loss of a recipe."""
    chosen = dict(vars(recipe.loss_arguments))
    if recipe.uses_pairs:
        chosen["normalization"] = recipe.normalization
    if recipe.miner != "none":
        miner = recipe.miner.replace("-", "_")
        chosen |= {"miner": miner, "seed": recipe.seed}
    return losses()[recipe.loss](**chosen)


def build_loss_layer(recipe: Recipe, num_classes: int) -> Any:
    """Returns the layer that holds a loss's own weights, or None."""
    if recipe.loss == "libc":
        return gsp.layers.IntraBatchClassifier(num_classes)
    own = recipe.loss_arguments
    if recipe.loss == "margin" and own.learn_beta:
        return gsp.layers.LearnedBoundary(initial_boundary=own.beta)
    return None


def build_regularizer(recipe: Recipe) -> Any:
    """Returns the zero-shot or cross-batch loss of a recipe, or None.

    Cross-batch learning applies the recipe's own loss to the embeddings of
    each half, expressed with the prototypes of the other.
    """
    ridge, seed = recipe.ridge, recipe.seed
    if recipe.regularizer == "zsr":
        scale = recipe.zero_shot_scale
        return gsp.losses.ZeroShotLoss(ridge, scale, seed=seed)
    if recipe.regularizer == "xml":
        return gsp.losses.CrossBatchLoss(build_loss(recipe), ridge, seed=seed)
    return None


def fit_whitening(recipe: Recipe, learner: Any, batches: Any) -> None:
    """Fits the whitening of a recipe, if any, to all training images.

    `batches` yields each image once, with its class.
    """
    if recipe.whitening == "none":
        return
    layer = learner.encoder.get_layer("whitening")
    features = features_before(learner.encoder, layer)
    embeddings, labels = encoded(features, batches)
    layer.adapt(embeddings, labels if recipe.whitening == "learned" else None)


def start_from_data(recipe: Recipe, learner: Any, batches: Any) -> None:
    """Starts statistics and prototypes from batches of training images.

    A run that resumes has them already.
    """
    batches = batches.take(START_BATCHES)
    settle_statistics(recipe, learner, batches)
    start_prototypes(recipe, learner, batches)


def settle_statistics(recipe: Recipe, learner: Any, batches: Any) -> None:
    """Updates batch normalization with training images before the first step.

    From mean 0 and variance 1 on, validation would score another network than
    the trained one, and prototypes start from wrong features. With a weights
    file only statistics of the pooling are updated. Does nothing on JAX, where
    several processes may hold a part of the network each.
    """
    if keras.backend.backend() != "tensorflow":
        return
    settled, before = learner.encoder, None
    if recipe.backbone_weights is not None or recipe.cache_features:
        settled = settled.get_layer("pooling")
        before = predictor(features_before(learner.encoder, settled))
    if not any("moving" in v.name for v in settled.non_trainable_variables):
        return
    for images, _ in batches.as_numpy_iterator():
        # A batch of many chunks would not fit as a whole.
        inputs = images[:SETTLED]
        settled(inputs if before is None else before(inputs), training=True)


def start_prototypes(recipe: Recipe, learner: Any, batches: Any) -> None:
    """Starts the prototypes from features of training images.

    Local features, or the average of each image with `prototype_start=pooled`.
    Does nothing if no layer has prototypes, or with `prototype_start=random`.
    """
    layers = {layer.name: layer for layer in learner.encoder.layers}
    layer = layers.get("histogram") or layers["pooling"]
    if recipe.prototype_start == "random" or not hasattr(layer, "adapt"):
        return
    predict = predictor(features_before(learner.encoder, layer))
    found = [predict(images) for images, _ in batches.as_numpy_iterator()]
    features = np.concatenate(found)
    if recipe.prototype_start == "pooled":
        images = features.reshape(len(features), -1, features.shape[-1])
        features = images.mean(1, keepdims=True)
    layer.adapt(features, seed=recipe.seed)
