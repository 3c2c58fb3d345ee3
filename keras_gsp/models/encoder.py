"""The model that is trained, exported and served: image to embedding."""

from typing import Any

import keras

from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.ops.normalization import check_normalization


def build_encoder(
    backbone,
    *,
    embedding_size=128,
    pooling=None,
    normalization="l2",
    histogram=None,
    name="encoder",
):
    """Builds backbone, 1x1 convolution, pooling and normalisation as a model.

    Args:
        backbone: built Keras model whose output is a feature map (batch,
            height, width, channels) or a token sequence (batch, tokens,
            channels).
        embedding_size: size of the embedding, at least 1. Default 128.
        pooling: layer (batch, height, width, embedding_size) -> (batch,
            embedding_size), for example `GeneralizedSumPooling`. Default
            `None`: average pooling.
        normalization: `"l2"` (default), `"ball"` or `None`; see
            `EmbeddingNormalization`.
        histogram: optional layer from the same features, projected into
            the unit ball (`x / max(1, |x|)`), to (batch, num_prototypes), for
            example `PrototypeHistogram`, when the pooling does not return a
            histogram itself.
        name: name of the model. Default `"encoder"`.

    Returns:
        A functional model with the backbone's inputs. Its output is the
        embedding (batch, embedding_size), in float32; or, when the pooling
        returns a histogram or `histogram` is given, a dictionary with the
        keys `"embedding"`, `"histogram"` and `"pooled"`: what the histogram
        describes, (batch, embedding_size), not normalised. That is the plain
        average of the features the histogram was taken of, or the pooled
        vector of a pooling that returns its own histogram.

    Raises:
        ValueError: an embedding size below 1, an unknown normalisation, a
            backbone that is not built or whose output is already pooled, two
            sources of histograms.

    Example:

    ```python
    backbone = keras.Sequential(
        [keras.Input((32, 32, 3)), keras.layers.Conv2D(8, 3, strides=4)]
    )
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=16,
        pooling=gsp.layers.GeneralizedSumPooling(4),
    )
    assert encoder(np.zeros((2, 32, 32, 3))).shape == (2, 16)
    ```
    """
    check_normalization(normalization)
    if embedding_size < 1:
        raise ValueError(
            "`embedding_size` must be at least 1. "
            f"Received: embedding_size={embedding_size}."
        )
    features = _project(_feature_output(backbone), embedding_size)
    pooled, histograms, described = _pool(features, pooling, histogram)
    embedding = EmbeddingNormalization(
        normalization, name="normalization", dtype=_full_precision()
    )(pooled)
    outputs = embedding
    if histograms is not None:
        outputs = {
            "embedding": embedding,
            "histogram": histograms,
            "pooled": described,
        }
    inputs = backbone.inputs
    if len(inputs) == 1:
        (inputs,) = inputs
    return keras.Model(inputs, outputs, name=name)


def histogram_of(outputs):
    """Returns the histogram of an encoder's output, `None` without one."""
    return outputs.get("histogram") if isinstance(outputs, dict) else None


def pooled_of(outputs: Any) -> Any:
    """Returns what an encoder's histogram describes, `None` without."""
    return outputs.get("pooled") if isinstance(outputs, dict) else None


def _feature_output(backbone):
    if not getattr(backbone, "built", False) or not backbone.outputs:
        raise ValueError(
            "`backbone` must be a built Keras model. Received: "
            f"{backbone!r}. Give it a `keras.Input` or call it once."
        )
    features = backbone.outputs[0]
    if len(features.shape) not in (3, 4) or len(backbone.outputs) != 1:
        raise ValueError(
            "`backbone` must have one output, a feature map (batch, height, "
            "width, channels) or tokens (batch, tokens, channels). Received: "
            f"{[tuple(output.shape) for output in backbone.outputs]}. Build "
            "it without its top and its pooling."
        )
    return features


def _project(features, embedding_size):
    if len(features.shape) == 4:
        layer = keras.layers.Conv2D(embedding_size, 1, name="projection")
    else:
        layer = keras.layers.Dense(embedding_size, name="projection")
    return layer(features)


def _pool(features, pooling, histogram):
    """The pooled features, their histogram, and what that describes."""
    average = _average_pooling(features, "average")
    if pooling is None:
        pooling = average = _average_pooling(features, "pooling")
    pooled = pooling(features)
    histograms = None
    if isinstance(pooled, (list, tuple)):
        pooled, histograms = pooled
    if histogram is None:
        return pooled, histograms, pooled
    if histograms is not None:
        raise ValueError(
            "Only one of `pooling` and `histogram` can give the "
            "histogram. Received: a pooling with return_histogram=True "
            f"and histogram={histogram!r}."
        )
    in_ball = EmbeddingNormalization(
        "ball", name="unit_ball", dtype=_full_precision()
    )(features)
    described = pooled if pooling is average else average(features)
    return pooled, histogram(in_ball), described


def _average_pooling(features, name):
    if len(features.shape) == 4:
        return keras.layers.GlobalAveragePooling2D(name=name)
    return keras.layers.GlobalAveragePooling1D(name=name)


def _full_precision():
    """float64 where the policy computes in it, float32 otherwise."""
    compute_dtype = keras.config.dtype_policy().compute_dtype
    return "float64" if compute_dtype == "float64" else "float32"
