"""Starts an encoder's projection from its features instead of at random."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_gsp.embeddings.labeled_batches import batches_of
from keras_gsp.embeddings.processes import predictor
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.layers.prototype_histogram import PrototypeHistogram
from keras_gsp.models.encoder import features_before

BATCH_SIZE = 64
MAX_IMAGES = 10_000
# Their local features are enough to choose prototypes from.
NUM_ADAPTED = 1_000


def start_projection(
    encoder: keras.Model, images: Any, *, whiten: bool = False, seed: int = 0
) -> None:
    r"""Starts the layer `"projection"` from PCA or whitening of the features.

    A projection that starts at random loses most of what a pretrained
    backbone knows, and training may not bring it back. From PCA an encoder
    begins about where the backbone's own pooled features are. Train it at a
    tenth of the learning rate that a random start needs.

    With C the covariance of the pooled features, and :math:`V` its leading
    eigenvectors with eigenvalues :math:`v`, the kernel is V for PCA, and
    :math:`V / \sqrt{v}` of the shrunk covariance
    :math:`(1 - s) C + s\, \mathrm{tr}(C) / d\, I` for whitening; s is the
    estimate of Ledoit and Wolf. A bias becomes minus the projected mean.
    Prototypes behind the projection (of `GeneralizedSumPooling`, `OTKPooling`,
    `PrototypeHistogram`) are then chosen among projected local features by
    their `adapt`; in an encoder without projection that is all that happens.

    Args:
        encoder: an encoder of `build_encoder`, or another functional model
            with a dense or 1x1 convolution layer named `"projection"`.
        images: inputs of the encoder: an array, or a finite data set of
            batches, with or without labels. Take training images only; 10,000
            of them are used, drawn at random from an array, else the first.
        whiten: whether directions of small variance count as much as others:
            begins lower than PCA, and can end higher.
        seed: integer seed of that draw and of `adapt`.

    Raises:
        ValueError: no projection and no prototypes; more dimensions than the
            features have or images are; features that are not finite.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    backbone = keras.Sequential(
        [keras.Input((32, 32, 3)), keras.layers.Conv2D(8, 3, strides=4)]
    )
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=4,
        pooling=gsp.layers.GeneralizedSumPooling(5),
    )
    images = np.random.default_rng(0).random((20, 32, 32, 3))
    gsp.models.start_projection(encoder, images)
    ```

    Reference:
        Ledoit and Wolf, "A well-conditioned estimator for large-dimensional
        covariance matrices", Journal of Multivariate Analysis 88, 2004.
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
        # Each image's mean, in float64.
        pooled = np.concatenate(
            [
                x.astype("float64").mean(axis=tuple(range(1, x.ndim - 1)))
                for x in _outputs(before, images, MAX_IMAGES, seed)
            ]
        )
        size = projection.kernel.shape[-1]
        _check_pooled(pooled, size)
        kernel, bias = _principal(pooled, size, whiten)
        projection.kernel.assign(np.reshape(kernel, projection.kernel.shape))
        if projection.bias is not None:
            projection.bias.assign(bias)
    for layer in adapted:
        before = features_before(encoder, layer)
        features = list(_outputs(before, images, NUM_ADAPTED, seed))
        layer.adapt(np.concatenate(features), seed=seed)


def _projection(encoder):
    """The layer that projects, or `None`."""
    for layer in encoder.layers:
        is_map = isinstance(layer, keras.layers.Dense | keras.layers.Conv2D)
        size = getattr(layer, "kernel_size", (1, 1))
        if layer.name == "projection" and is_map and size == (1, 1):
            return layer
    return None


def _outputs(model, images, count, seed) -> Iterator[np.ndarray]:
    """Yields a model's outputs for at most `count` images."""
    dataset = (images,) if hasattr(images, "shape") else images
    order = None
    if isinstance(dataset, tuple):
        dataset = tuple(np.asarray(array) for array in dataset)
        drawn = np.random.default_rng(seed).permutation(len(dataset[0]))
        order = np.sort(drawn[:count])
        count = len(order)
    predict = predictor(model)
    for batch in batches_of(dataset, BATCH_SIZE, order):
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        inputs = keras.tree.map_structure(lambda x, n=count: x[:n], inputs)
        length = len(keras.tree.flatten(inputs)[0])
        # Under tf.distribute every replica returns the whole batch.
        yield np.asarray(predict(inputs))[:length]
        count -= length
        if count == 0:
            return


def _check_pooled(pooled, size):
    count, channels = pooled.shape
    if not np.isfinite(pooled).all():
        raise ValueError(
            "Features of `images` must be finite. Received: NaN or infinity."
        )
    most = min(channels, count - 1)
    if size > most:
        raise ValueError(
            "`embedding_size` must be at most the channels of the features, "
            "and below the number of images. Received: a projection to "
            f"{size} dimensions, {channels} channels, {count} images. Give "
            f"more images, or an `embedding_size` of at most {most}."
        )


def _principal(rows, size, whiten):
    """Kernel (channels, size) and bias (size,) of PCA or whitening."""
    mean = rows.mean(axis=0)
    centered = rows - mean
    covariance = centered.T @ centered / len(rows)
    if whiten:
        shrinkage = _ledoit_wolf(centered, covariance)
        average = np.trace(covariance) / len(covariance)
        covariance = (1.0 - shrinkage) * covariance
        covariance += shrinkage * average * np.eye(len(covariance))
    variances, directions = np.linalg.eigh(covariance)
    kernel = directions[:, ::-1][:, :size]
    if whiten:
        kernel = kernel / np.sqrt(variances[::-1][:size])
    # The sign of an eigenvector is arbitrary: the largest entry decides.
    largest = np.abs(kernel).argmax(axis=0)
    kernel = kernel * np.sign(kernel[largest, np.arange(size)])
    return kernel, -mean @ kernel


def _ledoit_wolf(centered, covariance):
    """The shrinkage with the least expected squared error, in [0, 1]."""
    count, size = centered.shape
    average = np.trace(covariance) / size
    spread = np.square(covariance).sum() - size * average**2
    fourth = np.square(np.square(centered).sum(axis=1)).sum() / count
    noise = (fourth - np.square(covariance).sum()) / count
    return min(1.0, max(0.0, noise / spread)) if spread > 0.0 else 1.0
