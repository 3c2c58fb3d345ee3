"""An encoder that finds the subject, and looks at it again from close up."""

import math
import warnings
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_choice, check_interval
from keras_gsp._configured import Configured, ConfiguredLayer
from keras_gsp._encoding import embedding_of, embedding_tensor, input_of
from keras_gsp._tensor import Tensor
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.layers.expected_preprocessing import ExpectedPreprocessing
from keras_gsp.ops.precision import at_least_float32, full_matmul

# Cells a side: the margin of half a cell on each side is a quarter of four.
FEW_CELLS = 5


class TwoLooks(Configured, keras.Model):
    """Embeds an image, then the box where its pooling found the subject.

    Resizes an image for the `first` encoder, places a box around the mass of
    its pooling weights, crops the box out of the image, and embeds the crop
    with the `second` encoder, in two passes. Give it images with more pixels
    than the encoders take. Boxes get no gradient; both looks do (on JAX train
    in a `MetricLearner`, which compiles a step). Another second encoder is
    trained on `.crops(images)` first.

    Args:
        first: encoder with one pooling that has `pooling_weights`, such as
            `GeneralizedSumPooling` or `AttentionPooling`, on a feature map,
            for images of a known size; or a `MultiView` of one.
        second: encoder of the crops, for images of a known size. `None`:
            `first`.
        window: side of the box as a share of the image's, in (0, 1]: of all
            such boxes the one with most pooled mass. `None`: along each axis
            the central share `mass` of the pooled mass, its length divided by
            `mass`, and half a cell on either side; then the square around it,
            moved into the image. Mass spread over everything gives the whole
            image.
        mass: that share, in (0, 1].
        combine: `"sum"` of the two l2-normalized embeddings,
            `"concatenate"`, `"first"` or `"second"`. The result is
            l2-normalized.
        preprocessing: `gsp.data.Preprocessing` of the images that this model
            receives, saved with it. `None`: files are read whole, one at a
            time, no larger than the smallest box can use.
        name: name of the model.

    Input shape:
        (batch, height, width, channels), of any height and width.

    Output shape:
        (batch, embedding_size), float32; the sizes of both embeddings added
        for `"concatenate"`.

    Raises:
        ValueError: an argument outside its range; an encoder for images of
            unknown size; a first encoder without exactly one pooling of a
            feature map that has weights; a sum of different sizes; a second
            encoder of other channels.

    Example:

    ```python
    encoder = keras.Sequential([
        keras.Input((32, 32, 3)), gsp.layers.GeneralizedSumPooling(5)
    ])
    looks = gsp.models.TwoLooks(encoder)
    images = np.random.default_rng(0).random((2, 96, 64, 3))
    assert looks(images).shape == (2, 3)
    assert looks.boxes(images).shape == (2, 4)
    assert looks.crops(images).shape == (2, 32, 32, 3)
    ```

    Reference:
        The pooling in place of the attention of Fu et al., "Look Closer to
        See Better", CVPR 2017, and Hu et al., "See Better Before Looking
        Closer" (WS-DAN), arXiv 1901.09891.
    """

    def __init__(
        self,
        first: keras.Model,
        second: keras.Model | None = None,
        *,
        window: float | None = None,
        mass: float = 0.8,
        combine: str = "sum",
        preprocessing: Any = None,
        name: str = "two_looks",
    ) -> None:
        check_choice("first", "second", "sum", "concatenate", combine=combine)
        check_interval("(0, 1]", mass=mass)
        if window is not None:
            check_interval("(0, 1]", window=window)
        near = first if second is None else second
        channels = [input_of(encoder).shape[-1] for encoder in (first, near)]
        if channels[0] != channels[1]:
            raise ValueError(
                "`first` and `second` must take images of as many channels. "
                f"Received: {channels[0]} and {channels[1]}."
            )
        inputs = keras.Input((None, None, channels[0]))
        record = ExpectedPreprocessing(preprocessing, name="images")
        images = record(inputs)
        whole = Crop(_image_size("first", first), name="whole")(images)
        embedding, weights = _with_weights(first, whole)
        if window is None and min(weights.shape[1:]) < FEW_CELLS:
            warnings.warn(
                f"The first look pools {weights.shape[1]} x {weights.shape[2]} "
                "places: boxes are nearly the whole image. Give it larger "
                "images, or set `window`.",
                stacklevel=2,
            )
        boxes = Boxes(window, mass, name="boxes")([images, weights])
        size = _image_size("second", near)
        # No box has a smaller share of the image, or uses more pixels.
        share = window or 1 / min(weights.shape[1:])
        record.shorter_side = math.ceil(max(size) / share)
        crops = Crop(size, name="crops")([images, boxes])
        looks = {"first": embedding, "second": embed(near, crops)}
        super().__init__(inputs, _combined(looks, combine), name=name)
        self.first = first
        self.second = second
        self.window = window
        self.mass = mass
        self.combine = combine
        self.preprocessing = preprocessing
        # In a closure: Keras would track and save the models once more.
        finder, cropper = (keras.Model(inputs, x) for x in (boxes, crops))
        self.finder = lambda: finder
        self._cropper = lambda: cropper

    def boxes(self, images: Any) -> np.ndarray:
        """Returns (batch, 4): top, left, bottom, right, in [0, 1].

        `images` are those of a call or, as in `predict`, a data set of them.
        """
        return self.finder().predict(images, verbose=0)

    def crops(self, images: Any) -> np.ndarray:
        """Returns what the second encoder sees of each image, float32.

        (batch, height, width, channels).
        """
        return self._cropper().predict(images, verbose=0)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, and which layers are shared.

        Raises:
            ValueError: encoders that share layers inside of layers.
        """
        shared = _shared_layers(self.first, self.second)
        return super().get_config() | {"shared": shared}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        read = keras.saving.deserialize_keras_object
        arguments = {name: read(value) for name, value in config.items()}
        shared, first = arguments.pop("shared", {}), arguments["first"]
        if shared and arguments["second"] is not first:
            arguments["second"] = keras.models.clone_model(
                arguments["second"],
                clone_function=lambda layer: (
                    first.get_layer(shared[layer.name])
                    if layer.name in shared
                    else layer
                ),
            )
        return cls(**arguments)


def embed(encoder: keras.Model, images: Any) -> Any:
    """Returns the symbolic embedding of symbolic images."""
    is_list = isinstance(getattr(encoder, "input", None), list)
    return embedding_of(encoder([images] if is_list else images))


class Boxes(ConfiguredLayer):
    """Places a box (batch, 4) on each of `images`, given maps of weights."""

    def __init__(
        self, window: float | None, mass: float, **kwargs: Any
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.window = window
        self.mass = mass

    def call(self, inputs: list) -> Tensor:
        """Returns boxes (batch, 4)."""
        images, weights = inputs
        weights = ops.stop_gradient(weights)
        if self.window is None:
            return _boxes_around(weights, ops.shape(images)[1:3], self.mass)
        return _windows(weights, self.window)

    def compute_output_shape(self, shapes: list) -> tuple:
        return shapes[0][0], 4


class Crop(ConfiguredLayer):
    """Crops boxes, or takes the whole, as Pillow's `resize(..., box=...)`.

    `size` is (height, width) of the result, or a factor of the image's size.
    """

    def __init__(self, size: tuple[int, int] | float, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.size = size
        # A model with this layer is compiled only if `compile` says so: XLA
        # would compile it for every size of image.
        self.supports_jit = False

    def call(self, inputs: Any) -> Tensor:
        """Returns images (batch, height, width, channels)."""
        whole = [[0.0, 0.0, 1.0, 1.0]]
        images, boxes = inputs if isinstance(inputs, list) else (inputs, whole)
        boxes = ops.convert_to_tensor(boxes, "float32")
        height, width = ops.shape(images)[1:3]
        rows, columns = self._output_size(height, width)
        top, left, bottom, right = ops.unstack(boxes, 4, axis=-1)
        rows = _resizing(top, bottom, height, rows)
        columns = _resizing(left, right, width, columns)
        planes = ops.transpose(images, (0, 3, 1, 2))
        planes = ops.matmul(rows[:, None], planes)
        columns = ops.swapaxes(columns, -1, -2)[:, None]
        return ops.moveaxis(ops.matmul(planes, columns), -3, -1)

    def compute_output_shape(self, shapes: Any) -> tuple:
        """Returns (batch, height, width, channels)."""
        shape = shapes[0] if isinstance(shapes, list) else shapes
        return shape[0], *self._output_size(*shape[1:3]), shape[-1]

    def _output_size(self, *image_size):
        """Height and width, as far as they are known."""
        if not isinstance(self.size, float):
            return self.size
        return [
            ops.cast(ops.round(self.size * ops.cast(n, "float32")), "int32")
            if ops.is_tensor(n)
            else n and round(self.size * n)
            for n in image_size
        ]


class _PoolingWeights(keras.layers.Layer):
    """The weights of a pooling as a map; the mean of several queries."""

    def __init__(self, pooling: keras.layers.Layer) -> None:
        super().__init__(name="pooling_weights", dtype="float32")
        self.pooling = pooling

    def call(self, features: Tensor) -> Tensor:
        weights = at_least_float32(self.pooling.pooling_weights(features))
        if len(weights.shape) == 4:
            weights = ops.mean(weights, axis=-1)
        return ops.cast(weights, "float32")

    def compute_output_shape(self, shape: tuple) -> tuple:
        return shape[:-1]

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(
            "A `TwoLooks` is saved and copied whole. Put it into a "
            "`keras.Sequential` instead of taking its inputs and outputs."
        )


def _boxes_around(weights, image_size, mass):
    ends = [_central(ops.sum(weights, axis=axis), mass) for axis in (2, 1)]
    low, high = (ops.stack(shares, -1) for shares in zip(*ends, strict=True))
    size = ops.cast(ops.stack(image_size), "float32")
    pixels = ops.max((high - low) * size, axis=-1, keepdims=True)
    lengths = ops.minimum(pixels / size, 1.0)
    start = ops.clip((low + high - lengths) / 2.0, 0.0, 1.0 - lengths)
    return ops.concatenate([start, start + lengths], axis=-1)


def _central(masses, share):
    """Ends of the central share, and of what it would be if spread evenly."""
    masses = masses / ops.sum(masses, axis=1, keepdims=True)
    before = ops.cumsum(masses, axis=1) - masses
    cells = masses.shape[1]

    def quantile(level):
        part = (level - before) / ops.maximum(masses, 1e-12)
        return ops.sum(ops.clip(part, 0.0, 1.0), axis=1) / cells

    low, high = quantile((1.0 - share) / 2.0), quantile((1.0 + share) / 2.0)
    margin = (high - low) * (1.0 / share - 1.0) / 2.0 + 0.5 / cells
    return low - margin, high + margin


def _windows(weights, window):
    """The boxes (batch, 4) with most mass."""
    rows, columns = weights.shape[1:]
    tops, row_shares = _window_starts(rows, window)
    lefts, column_shares = _window_starts(columns, window)
    masses = full_matmul(full_matmul(row_shares, weights), column_shares.T)
    masses = ops.reshape(masses, (-1, len(tops) * len(lefts)))
    # Converters to ONNX know no `argmax`.
    best = ops.top_k(masses, 1)[1][:, 0]
    top = ops.take(ops.convert_to_tensor(tops), best // len(lefts))
    left = ops.take(ops.convert_to_tensor(lefts), best % len(lefts))
    return ops.stack([top, left, top + window, left + window], axis=-1)


def _window_starts(cells, window):
    """Starts of windows, one of which is best, and their shares of cells."""
    # The mass is linear between positions where an end meets a cell's border.
    width = window * cells
    borders = np.arange(cells + 1.0)
    starts = np.concatenate([borders, borders - width])
    starts = np.unique(np.clip(starts, 0.0, cells - width).round(6))
    ends = np.minimum(starts[:, None] + width, borders[1:])
    shares = np.maximum(ends - np.maximum(starts[:, None], borders[:-1]), 0.0)
    return (starts / cells).astype("float32"), shares.astype("float32")


def _resizing(low, high, pixels, size):
    """Matrices (..., size, pixels) that resize between two shares."""
    count = ops.cast(pixels, "float32")
    scale = ((high - low) * count / ops.cast(size, "float32"))[..., None]
    middles = ops.cast(ops.arange(size), "float32") + 0.5
    centers = (low * count)[..., None] + middles * scale
    positions = ops.arange(pixels, dtype="float32") + 0.5
    distances = ops.abs(positions - centers[..., None])
    weights = ops.relu(1.0 - distances / ops.maximum(scale, 1.0)[..., None])
    return weights / ops.sum(weights, axis=-1, keepdims=True)


def _combined(looks, combine):
    last = EmbeddingNormalization("l2", dtype="float32", name="normalization")
    if combine in ("first", "second"):
        return last(looks[combine])
    unit = EmbeddingNormalization("l2", dtype="float32", name="unit")
    looks = [unit(look) for look in looks.values()]
    if combine == "concatenate":
        return last(keras.layers.Concatenate(name="looks")(looks))
    sizes = [look.shape[-1] for look in looks]
    if sizes[0] != sizes[1]:
        raise ValueError(
            "`first` and `second` must have one embedding size with combine="
            f'"sum". Received: sizes {sizes}. Take combine="concatenate".'
        )
    return last(keras.layers.Add(name="looks")(looks))


def _shared_layers(first, second):
    """Name of each layer of the second that the first has -> its name there."""
    # Keras would build a copy for either encoder, and load one of them.
    names = {id(layer): layer.name for layer in first.layers}
    shared = [x for x in getattr(second, "layers", ()) if id(x) in names]
    variables = {id(v) for layer in shared for v in layer.variables}
    everywhere = {id(v) for v in getattr(second, "variables", ())}
    if everywhere & {id(v) for v in first.variables} != variables:
        raise ValueError(
            "`first` and `second` must share whole layers to be saved. "
            "Received: encoders that share layers inside of layers."
        )
    is_input = keras.layers.InputLayer
    return {x.name: names[id(x)] for x in shared if not isinstance(x, is_input)}


def _image_size(name, encoder):
    shape = getattr(input_of(encoder), "shape", ())
    if len(shape) != 4 or None in shape[1:]:
        raise ValueError(
            f"`{name}` must take images of a known size. Received: an encoder "
            f"of inputs of shape {tuple(shape)}."
        )
    return shape[1:3]


def _with_weights(first, images):
    """The embedding of symbolic images, and the pooling's weights."""
    encoder = getattr(first, "encoder", first)  # Of a `MultiView`.
    poolings = [x for x in encoder.layers if hasattr(x, "pooling_weights")]
    if len(poolings) != 1:
        raise ValueError(
            "`first` must have one pooling with `pooling_weights`, such as "
            f"GeneralizedSumPooling. Received: {len(poolings)} in the "
            f"{len(encoder.layers)} layers of {encoder.name!r}."
        )
    features = keras.tree.flatten(poolings[0].input)[0]
    if len(features.shape) != 4:
        raise ValueError(
            "`first` must pool a feature map. Received: features of shape "
            f"{tuple(features.shape)}. Build it with `grid_shape`."
        )
    outputs = embedding_tensor(encoder), _PoolingWeights(poolings[0])(features)
    embedding, weights = keras.Model(input_of(encoder), outputs)(images)
    return embedding if encoder is first else embed(first, images), weights
