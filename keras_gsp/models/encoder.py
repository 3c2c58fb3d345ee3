"""Builds encoders: the model from images to embeddings."""

import math
import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_choice, check_count, check_integer
from keras_gsp._compat import mask_of, operation_of
from keras_gsp._encoding import embedding_of, embedding_tensor, input_of
from keras_gsp._tensor import Tensor
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.layers.expected_preprocessing import ExpectedPreprocessing
from keras_gsp.layers.patch_tokens import PatchTokens, TokenGrid
from keras_gsp.models.lora import enable_lora
from keras_gsp.ops.masked_reductions import kept_from_mask, zero_where_empty
from keras_gsp.ops.normalization import check_normalization, normalize


def build_encoder(
    backbone: keras.Model,
    *,
    embedding_size: int | None = 128,
    pooling: keras.layers.Layer | None = None,
    normalization: str | None = "l2",
    histogram: keras.layers.Layer | None = None,
    prefix_tokens: int = 0,
    prefix: str = "drop",
    grid_shape: tuple[int, int] | None = None,
    preprocessing: Any = None,
    lora_rank: int | None = None,
    name: str = "encoder",
) -> keras.Model:
    """Builds backbone, projection, pooling and normalization as a model.

    Args:
        backbone: built Keras model whose output is a feature map (batch,
            height, width, channels) or a token sequence (batch, tokens,
            channels), for example any of `keras.applications` without its top
            and pooling, or an image backbone of keras-hub.
        embedding_size: size of the projected features and, with most
            poolings, of the embedding, at least 1. `None`: no projection; the
            backbone's features are pooled. See `initialize_projection`.
        pooling: layer from features to (batch, size), for example
            `GeneralizedSumPooling`. `None`: average pooling. GeM, CroW, CBAM,
            DELF and others (`pools_first`) pool what a ReLU leaves, and the
            pooled vector is projected, without a bias; before GSP, NetVLAD,
            OTK and WELDON a 1x1 convolution projects the features. GSP with a
            `power` matches projected features and pools the backbone's.
        normalization: `"l2"`, `"ball"` or `None`; see
            `EmbeddingNormalization`.
        histogram: optional layer, for example `PrototypeHistogram`, from
            projected features in the unit ball (`x / max(1, |x|)`) to (batch,
            num_prototypes), for a pooling that returns no histogram.
        prefix_tokens: number of leading tokens that are not patches but
            class or register tokens: 1 for ViT and CLIP, 1 plus the registers
            for DINOv2 and DINOv3, at least 0.
        prefix: `"drop"` removes these tokens, `"keep"` pools them with the
            patches, as a sequence without a grid, `"concatenate"` projects
            them and appends them to the pooled vector.
        grid_shape: (rows, columns) of the patches, which the pooling receives
            as a feature map. `None`: derived from the image's size and the
            number of tokens; the patches stay a sequence if these are unknown
            or the backbone masks tokens.
        preprocessing: `gsp.data.Preprocessing` of the images, saved with the
            encoder; indexes and exports then crop images alike. Its `scale`
            and `offset` become a layer before the backbone.
        lora_rank: rank of low-rank factors (LoRA) that are trained in place of
            the backbone's weights, at least 1, for example 8. Freezes
            `backbone` but for factors and biases of the layers whose kernels
            are larger than their factors; a backbone of keras-hub with
            attention chooses its queries and values. See `merge_lora`.
        name: name of the model.

    Returns:
        A functional model to embeddings, float32, (batch, embedding_size);
        `prefix="concatenate"` adds `embedding_size` for each token, and a
        pooling to several vectors (NetVLAD, OTK, optimal transport) has its
        own size. With histograms the output
        is a dictionary with the keys `"embedding"`, `"histogram"` and
        `"pooled"`: the vector that the histogram describes, (batch, size),
        not normalized. That is the pooled vector of a pooling with its own
        histogram, otherwise the average of the features.

    Raises:
        ValueError: an argument out of its range, a backbone that is not built
            or whose output is already pooled, arguments that contradict the
            backbone or each other, a `lora_rank` too large for every layer,
            or a backbone that has LoRA already.

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
    check_count(is_optional=True, embedding_size=embedding_size)
    inputs, features = _feature_output(backbone, preprocessing)
    _check_prefix(features, prefix_tokens, prefix, grid_shape)
    if preprocessing is not None:
        _check_size(inputs, preprocessing)
        features = ExpectedPreprocessing(preprocessing, name="preprocessing")(
            features
        )
    if lora_rank is not None:
        enable_lora(backbone, lora_rank)
    is_maximum = isinstance(pooling, keras.layers.GlobalMaxPooling2D)
    pool_first = getattr(pooling, "pools_first", is_maximum)
    last = None
    if embedding_size is not None:
        last = _projection(features, embedding_size, pool_first)
        if not pool_first:
            features, last = last(features), None
    tokens = features
    if len(tokens.shape) == 3 and prefix != "keep":
        features = _patches(inputs, tokens, prefix_tokens, grid_shape)
    pooled, histograms, described = _pool(features, pooling, histogram, last)
    if prefix == "concatenate":
        first = _prefix(tokens, prefix_tokens)
        if last is not None:
            first = last(first)
        first = keras.layers.Flatten(name="flat_prefix")(first)
        pooled = keras.layers.Concatenate(name="with_prefix")([pooled, first])
    outputs = EmbeddingNormalization(
        normalization, name="normalization", dtype=_full_precision()
    )(pooled)
    if histograms is not None:
        outputs = {"embedding": outputs, "histogram": histograms}
        outputs["pooled"] = described
    if len(inputs) == 1:
        (inputs,) = inputs
    return keras.Model(inputs, outputs, name=name)


def features_before(
    encoder: keras.Model, layer: keras.layers.Layer
) -> keras.Model:
    """Returns the model from an encoder's inputs to the input of its layer."""
    return keras.Model(input_of(encoder), keras.tree.flatten(layer.input)[0])


def _patch_grid(inputs, tokens, prefix_tokens):
    images = [x.shape[1:3] for x in inputs if len(x.shape) == 4]
    if len(images) != 1 or None in images[0] or tokens.shape[1] is None:
        return None
    height, width = images[0]
    count = tokens.shape[1] - prefix_tokens
    rows = round(math.sqrt(max(count, 0) * height / width))
    if rows == 0 or count % rows:
        return None
    # Patches are square: the grid has the image's proportions.
    columns = count // rows
    return (rows, columns) if rows * width == columns * height else None


def _check_prefix(features, prefix_tokens, prefix, grid_shape):
    """Raises `ValueError` for arguments that would have no effect."""
    check_choice("drop", "keep", "concatenate", prefix=prefix)
    check_integer(least=0, prefix_tokens=prefix_tokens)
    if len(features.shape) == 4 and (prefix_tokens or grid_shape):
        raise ValueError(
            "`prefix_tokens` and `grid_shape` need tokens. Received: a feature "
            f"map, prefix_tokens={prefix_tokens}, grid_shape={grid_shape}."
        )
    if prefix == "concatenate" and not prefix_tokens:
        raise ValueError(
            '`prefix_tokens` must be at least 1 with prefix="concatenate". '
            f"Received: prefix_tokens={prefix_tokens}."
        )


def _check_size(inputs, preprocessing):
    """Raises `ValueError` unless images have the size they are cropped to."""
    height, width = preprocessing.height, preprocessing.width
    for shape in [x.shape[1:3] for x in inputs if len(x.shape) == 4]:
        if shape[0] not in (None, height) or shape[1] not in (None, width):
            raise ValueError(
                "`backbone` must take images of the size of `preprocessing`. "
                f"Received: {tuple(shape)} pixels, {preprocessing}."
            )


def _feature_output(backbone, preprocessing):
    if not getattr(backbone, "built", False) or not backbone.outputs:
        raise ValueError(
            "`backbone` must be a built Keras model. Received: "
            f"{backbone!r}. Give it a `keras.Input` or call it once."
        )
    features = backbone.outputs[0]
    if len(features.shape) not in (3, 4) or len(backbone.outputs) != 1:
        raise ValueError(
            "`backbone` must have one output, a feature map or tokens. "
            f"Received: {[tuple(x.shape) for x in backbone.outputs]}. Build "
            "it without its top and its pooling, or end it before them: "
            "keras.Model(backbone.inputs, backbone.get_layer(...).output)."
        )
    scale = getattr(preprocessing, "scale", 1.0)
    offset = getattr(preprocessing, "offset", 0.0)
    is_scaled = (scale, offset) != (1.0, 0.0)
    is_plain = type(backbone).__name__ in ("Functional", "Sequential")
    if is_plain and not is_scaled:
        return list(backbone.inputs), features
    # A subclass, as those of keras-hub, can only be saved as a whole.
    inputs = keras.tree.map_structure(
        lambda x: keras.Input(batch_shape=x.shape, dtype=x.dtype, name=x.name),
        input_of(backbone),
    )
    scaled = inputs
    if is_scaled:
        layer = keras.layers.Rescaling(scale, offset, name="pixel_range")
        scaled = keras.tree.map_structure(layer, inputs)
    return keras.tree.flatten(inputs), backbone(scaled)


def _patches(inputs, tokens, prefix_tokens, grid_shape):
    """The tokens after the prefix, as a map if they have a grid."""
    if grid_shape is None and mask_of(tokens) is None:
        grid_shape = _patch_grid(inputs, tokens, prefix_tokens)
        if grid_shape is None and not prefix_tokens:
            _warn_of_prefix(inputs, tokens)
    if grid_shape is not None:
        return TokenGrid(
            grid_shape, prefix_tokens=prefix_tokens, name="patches"
        )(tokens)
    if not prefix_tokens:
        return tokens
    return PatchTokens(prefix_tokens, name="patches")(tokens)


def _warn_of_prefix(inputs, tokens):
    """Warns where patches fill a grid, but for a few leading tokens."""
    for count in range(1, 10):
        if grid := _patch_grid(inputs, tokens, count):
            warnings.warn(
                f"`prefix_tokens` is 0, and the tokens are {count} more than "
                f"{grid[0]} x {grid[1]} patches: class tokens are pooled as "
                f'patches. Set prefix_tokens={count}, or prefix="keep".',
                stacklevel=4,
            )
            return


def _prefix(tokens, count):
    if tokens.shape[1] is None:
        raise ValueError(
            "The number of tokens must be known with "
            f'prefix="concatenate". Received: shape {tuple(tokens.shape)}.'
        )
    # Not by their distance from the end: a stated number may be wrong.
    return tokens[:, :count]


def _projection(features, embedding_size, pool_first):
    """The layer that projects; `Dense` takes vectors and maps."""
    if len(features.shape) == 4 and not pool_first:
        return keras.layers.Conv2D(embedding_size, 1, name="projection")
    # Pooled vectors may be short, as of generalized max pooling: a bias soon
    # outweighs them, and all embeddings become equal.
    return keras.layers.Dense(
        embedding_size, use_bias=not pool_first, name="projection"
    )


def _pool(features, pooling, histogram, last=None):
    """Returns pooled features, their histogram, and what that describes."""
    is_average = pooling is None
    if is_average:
        pooling = _average_pooling(features, "pooling")
    if last is not None and getattr(pooling, "takes_values", False):
        pooled = pooling(last(features), values=features)
    else:
        pooled = pooling(features)
    histograms = None
    if isinstance(pooled, (list, tuple)):
        pooled, histograms = pooled
    if last is not None:
        pooled = last(pooled)
    if histogram is None:
        return pooled, histograms, pooled
    if histograms is not None:
        raise ValueError(
            "Only one of `pooling` and `histogram` can give the histogram. "
            f"Received: return_histogram=True and histogram={histogram!r}."
        )
    if last is not None:
        features = last(features)
    in_ball = EmbeddingNormalization(
        "ball", name="unit_ball", dtype=_full_precision()
    )(features)
    described = pooled
    if not is_average:
        described = _average_pooling(features, "average")(features)
    return pooled, histogram(in_ball), described


def _average_pooling(features, name):
    if len(features.shape) == 4:
        return keras.layers.GlobalAveragePooling2D(name=name)
    return _AverageOfTokens(name=name)


@keras.saving.register_keras_serializable(package="keras_gsp")
class _AverageOfTokens(keras.layers.GlobalAveragePooling1D):
    """Averages tokens; an all-masked row gives zeros, not Keras's NaN."""

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        pooled = super().call(inputs, kept_from_mask(mask, "bool"))
        return zero_where_empty(pooled, mask)


def _full_precision():
    """float64 if the policy computes in it, otherwise float32."""
    compute_dtype = keras.config.dtype_policy().compute_dtype
    return "float64" if compute_dtype == "float64" else "float32"


def truncate_encoder(encoder: keras.Model, size: int | None) -> keras.Model:
    """Returns an encoder to the first coordinates, normalized again.

    An encoder trained with `MatryoshkaLoss` loses little, and so does one that
    ends in `Whitening` without labels; others do not order coordinates by
    importance. Weights are shared.

    Args:
        encoder: functional or sequential model to embeddings, or to a dict
            with `"embedding"`.
        size: coordinates to keep, in [1, embedding_size]. `None`: all.

    Returns:
        A model to embeddings (batch, size); `encoder` itself for `None`.

    Raises:
        ValueError: a size outside its range.

    Example:

    ```python
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6)])
    small = gsp.models.truncate_encoder(encoder, 2)
    assert small(np.ones((3, 8))).shape == (3, 2)
    ```
    """
    if size is None:
        return encoder
    check_integer(least=1, truncate_to=size)
    embedding = embedding_tensor(encoder)
    if size > embedding.shape[-1]:
        raise ValueError(
            "`truncate_to` must be at most the embedding size, "
            f"{embedding.shape[-1]}. Received: truncate_to={size}."
        )
    inputs = input_of(encoder)
    if type(encoder).__name__ not in ("Functional", "Sequential"):
        # A subclass, as `TwoLooks`, can only be saved as a whole.
        inputs = keras.tree.map_structure(
            lambda x: keras.Input(batch_shape=x.shape, dtype=x.dtype), inputs
        )
        embedding = embedding_of(encoder(inputs))
    last = EmbeddingNormalization(
        normalization_of(encoder), name="normalized_part", dtype=embedding.dtype
    )
    return keras.Model(inputs, last(embedding[:, :size]), name=encoder.name)


def normalization_of(encoder: keras.Model) -> Any:
    """Returns how an encoder normalizes its embeddings; `"l2"` if unknown."""
    last = encoder.built and operation_of(embedding_tensor(encoder))
    return getattr(last, "normalization", "l2")


def truncated(embeddings: Any, size: int, normalization: Any) -> np.ndarray:
    """Returns the first coordinates of embeddings, normalized again."""
    return ops.convert_to_numpy(normalize(embeddings[:, :size], normalization))
