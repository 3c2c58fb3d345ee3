"""Starts an encoder's projection from its features instead of at random."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_gsp._labeled_batches import batches_of
from keras_gsp._labels import host_array
from keras_gsp._processes import predictor
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.layers.prototype_histogram import PrototypeHistogram
from keras_gsp.layers.whitening import Whitening
from keras_gsp.models.encoder import features_before

BATCH_SIZE = 64
MAX_IMAGES = 10_000
# Their local features are enough to choose prototypes from.
NUM_ADAPTED = 1_000
# Of learned whitening, see docs/results/whitening.md.
SHRINKAGE = 0.8


def initialize_projection(
    encoder: keras.Model,
    images: Any,
    *,
    shrinkage: float | None = None,
    seed: int = 0,
) -> None:
    r"""Starts the layer `"projection"` from learned whitening or PCA.

    A projection that starts at random loses up to a third of the MAP@R of a
    pretrained backbone's features. From class labels and the pooled features
    an encoder begins about where `Whitening` ends, without labels about where
    the features are. Search its learning rate.

    The kernel is the one that `Whitening.adapt` fits to the pooled features,
    times a factor that gives its columns a mean square length of 1, as PCA's.
    A bias becomes minus the projected mean. Prototypes behind the projection
    (of `GeneralizedSumPooling`, `OTKPooling`, `PrototypeHistogram`) are then
    chosen among projected local features by their `adapt`; in an encoder
    without projection that is all that happens.

    Args:
        encoder: an encoder of `build_encoder`, or another functional model
            with a dense or 1x1 convolution layer named `"projection"`.
        images: inputs of the encoder: an array, or a finite data set of
            batches, or such with labels, (images, labels), for learned
            whitening. Take training images only; 10,000 of them are used,
            drawn at random from arrays, else the first.
        shrinkage: of the covariance, in [0, 1]; 1 is PCA. Default `None`: 0.8
            with labels, else 1. See `Whitening`.
        seed: integer seed of that draw and of `adapt`.

    Raises:
        ValueError: no projection and no prototypes; more dimensions than the
            features have or images are; features that are not finite;
            arguments that `Whitening` refuses.

    Example:

    ```python
    backbone = keras.Sequential(
        [keras.Input((32, 32, 3)), keras.layers.Conv2D(8, 3, strides=4)]
    )
    encoder = gsp.models.build_encoder(backbone, embedding_size=4)
    images = np.random.default_rng(0).random((20, 32, 32, 3))
    gsp.models.initialize_projection(encoder, (images, np.arange(20) % 4))
    ```
    """
    adapted = [
        layer
        for layer in encoder.layers
        if isinstance(layer, FeaturePooling | PrototypeHistogram)
        and hasattr(layer, "adapt")
    ]
    projection = _projection(encoder)
    if projection is None and not adapted:
        raise ValueError(
            '`encoder` must have a layer named "projection", dense or a 1x1 '
            "convolution, or a pooling with prototypes. Received: layers "
            f"named {[layer.name for layer in encoder.layers]}."
        )
    if projection is not None:
        before = features_before(encoder, projection)
        pooled, labels = [], []
        for x, y in _outputs(before, images, MAX_IMAGES, seed):
            # Each image's mean, in float64.
            axes = tuple(range(1, x.ndim - 1))
            pooled.append(x.astype("float64").mean(axis=axes))
            labels += y
        _start(projection, np.concatenate(pooled), labels, shrinkage)
    for layer in adapted:
        before = features_before(encoder, layer)
        features = [x for x, _ in _outputs(before, images, NUM_ADAPTED, seed)]
        layer.adapt(np.concatenate(features), seed=seed)


def _projection(encoder):
    """The layer that projects, or `None`."""
    for layer in encoder.layers:
        is_map = isinstance(layer, keras.layers.Dense | keras.layers.Conv2D)
        size = getattr(layer, "kernel_size", (1, 1))
        if layer.name == "projection" and is_map and size == (1, 1):
            return layer
    return None


def _outputs(model, images, count, seed) -> Iterator[tuple]:
    """Yields a model's outputs for at most `count` images, and labels."""
    dataset = (images,) if hasattr(images, "shape") else images
    order = None
    if isinstance(dataset, tuple):
        dataset = tuple(map(host_array, dataset))
        drawn = np.random.default_rng(seed).permutation(len(dataset[0]))
        order = np.sort(drawn[:count])
        count = len(order)
    predict = predictor(model)
    for batch in batches_of(dataset, BATCH_SIZE, order):
        inputs, *labels = batch if isinstance(batch, tuple | list) else [batch]
        inputs = keras.tree.map_structure(lambda x, n=count: x[:n], inputs)
        length = len(keras.tree.flatten(inputs)[0])
        # Under tf.distribute every replica returns the whole batch.
        outputs = np.asarray(predict(inputs))[:length]
        yield outputs, list(np.ravel(labels[0])[:length]) if labels else []
        count -= length
        if count == 0:
            return


def _start(projection, pooled, labels, shrinkage):
    """Gives a layer the kernel of whitening, and a bias if it has one."""
    # A folder without labels has one class.
    is_labeled = len({*labels}) > 1
    size = projection.kernel.shape[-1]
    _check_pooled(pooled, size)
    if shrinkage is None:
        shrinkage = SHRINKAGE if is_labeled else 1.0
    whitening = Whitening(size, shrinkage=shrinkage)
    # PCA, unlike whitening, takes features that are equal within each class.
    is_learned = is_labeled and shrinkage < 1.0
    whitening.adapt(pooled, np.array(labels) if is_learned else None)
    mean = keras.ops.convert_to_numpy(whitening.mean).astype("float64")
    kernel = keras.ops.convert_to_numpy(whitening.kernel).astype("float64")
    # As long as PCA's, so that a learning rate means the same.
    kernel /= np.sqrt(np.square(kernel).sum(axis=0).mean())
    projection.kernel.assign(np.reshape(kernel, projection.kernel.shape))
    if projection.bias is not None:
        projection.bias.assign(-mean @ kernel)


def _check_pooled(pooled, size):
    count, channels = pooled.shape
    most = min(channels, count - 1)
    if size > most:
        raise ValueError(
            "`embedding_size` must be at most the channels of the features, "
            "and below the number of images. Received: a projection to "
            f"{size} dimensions, {channels} channels, {count} images. Give "
            f"more images, or an `embedding_size` of at most {most}."
        )
