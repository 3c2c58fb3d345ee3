"""An encoder that finds the subject, and looks at it again from close up."""

import inspect
import warnings
from functools import cache
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_choice, check_count, check_interval
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._encoding import embedding_of, embedding_tensor, input_of
from keras_gsp._tensor import Tensor
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.ops.precision import at_least_float32, full_matmul

# Cells a side: the margin of half a cell on each side is a quarter of four.
FEW_CELLS = 5


@keras.saving.register_keras_serializable(package="keras_gsp")
class TwoLooks(keras.Model):
    """Embeds an image, then the box where its pooling found the subject.

    Resizes an image for the `first` encoder, places a box around the mass of
    its pooling weights, crops the box out of the image as given, and embeds the
    crop with the `second` encoder. Give it images with more pixels than the
    encoders take, so that the second look sees more. It costs two passes.

    Boxes get no gradient; both looks do, so the model can be trained like any
    encoder. For a second encoder of its own, train the first, train the
    second on `.crops(images)`, and combine both here.

    Args:
        first: encoder with one pooling that has `pooling_weights`, such as
            `GeneralizedSumPooling` or `AttentionPooling`, on a feature map,
            for images of a known size.
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
            receives, saved with it. `None`: files are decoded whole, at their
            own size, one at a time.
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
    import keras
    import numpy as np
    import keras_gsp as gsp

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

    # Files are not cut for it as for its encoders.
    takes_originals = True

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
        images = keras.Input((None, None, input_of(first).shape[-1]))
        whole = Crop(_image_size("first", first), name="whole")(images)
        embedding, weights = _with_weights(first)(whole)
        if window is None and min(weights.shape[1:]) < FEW_CELLS:
            warnings.warn(
                f"The first look pools {weights.shape[1]} x {weights.shape[2]} "
                "places: boxes are nearly the whole image. Give it larger "
                "images, or set `window`.",
                stacklevel=2,
            )
        boxes = Boxes(window, mass, name="boxes")([images, weights])
        near = first if second is None else second
        size = _image_size("second", near)
        channels = [input_of(one).shape[-1] for one in (first, near)]
        if channels[0] != channels[1]:
            raise ValueError(
                "`first` and `second` must take images of as many channels. "
                f"Received: {channels[0]} and {channels[1]}."
            )
        crops = Crop(size, name="crops")([images, boxes])
        is_list = isinstance(getattr(near, "input", None), list)
        looks = [embedding, embedding_of(near([crops] if is_list else crops))]
        super().__init__(images, _combined(looks, combine), name=name)
        self.first = first
        self.second = second
        self.window = window
        self.mass = mass
        self.combine = combine
        self.preprocessing = preprocessing
        self.jit_compile = False  # It would compile every size of image.

        # In a closure: Keras would track and save the models once more.
        @cache
        def finders(num_boxes):
            several = Boxes(window, mass, num_boxes)([images, weights])
            crops = Crop(size)([images, several])
            models = [keras.Model(images, x) for x in (several, crops)]
            for model in models:
                model.jit_compile = False
            return models

        self._finders = finders

    def finder(self) -> keras.Model:
        """Returns the model from images to boxes; weights are shared."""
        return self._finders(None)[0]

    def boxes(self, images: Any, num_boxes: int | None = None) -> np.ndarray:
        """Returns (batch, 4): top, left, bottom, right, in [0, 1].

        `images` are those of a call or, as in `predict`, a data set of them.
        With `num_boxes`, for images of several subjects: (batch, num_boxes,
        4), each the best `window` once the mass in those before it is gone, at
        most as many as have room beside each other. They may overlap.
        """
        return self._find(images, num_boxes)[0].predict(images, verbose=0)

    def crops(self, images: Any, num_boxes: int | None = None) -> np.ndarray:
        """Returns what the second encoder sees of each box, float32.

        (batch, height, width, channels), or with `num_boxes` (batch,
        num_boxes, height, width, channels).
        """
        return self._find(images, num_boxes)[1].predict(images, verbose=0)

    def _find(self, images, num_boxes):
        shape = getattr(images, "shape", None)
        is_wrong = shape is not None and (len(shape) != 4 or not shape[0])
        if is_wrong or isinstance(images, list | tuple):
            raise ValueError(
                "`images` must be an array (batch, height, width, channels) "
                "of one image or more, or a data set of such arrays. "
                f"Received: {type(images).__name__}, shape {shape}."
            )
        check_count(is_optional=True, num_boxes=num_boxes)
        most = int(1 / self.window + 1e-6) ** 2 if self.window else 0
        if num_boxes is not None and num_boxes > most:
            raise ValueError(
                f"`num_boxes` must be at most {most}, the windows that have "
                "room beside each other (give a `window`). Received: "
                f"num_boxes={num_boxes}, window={self.window}."
            )
        return self._finders(num_boxes)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, and which layers are shared.

        Raises:
            ValueError: encoders that share layers inside of layers.
        """
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        config = {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in names
        }
        return config | {"shared": _shared_layers(self.first, self.second)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        """Rebuilds a model from `get_config`."""
        read = keras.saving.deserialize_keras_object
        given = {name: read(value) for name, value in config.items()}
        shared, first = given.pop("shared", {}), given["first"]
        if shared and given["second"] is not first:
            given["second"] = keras.models.clone_model(
                given["second"],
                clone_function=lambda layer: (
                    first.get_layer(shared[layer.name])
                    if layer.name in shared
                    else layer
                ),
            )
        return cls(**given)


@keras.saving.register_keras_serializable(package="keras_gsp")
class Boxes(ConfiguredLayer):
    """Places boxes on each of `images`, given maps of weights."""

    def __init__(
        self,
        window: float | None,
        mass: float,
        num_boxes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.window = window
        self.mass = mass
        self.num_boxes = num_boxes

    def call(self, inputs: list) -> Tensor:
        """Returns boxes (batch, 4), or (batch, num_boxes, 4)."""
        images, weights = inputs
        weights = ops.stop_gradient(weights)
        if self.window is None:
            return _boxes_around(weights, ops.shape(images)[1:3], self.mass)
        found = _windows(weights, self.window, self.num_boxes or 1)
        return found[0] if self.num_boxes is None else ops.stack(found, axis=1)

    def compute_output_shape(self, shapes: list) -> tuple:
        """Returns the shape of the boxes."""
        several = () if self.num_boxes is None else (self.num_boxes,)
        return shapes[0][0], *several, 4


@keras.saving.register_keras_serializable(package="keras_gsp")
class Crop(ConfiguredLayer):
    """Crops boxes, or takes the whole, as Pillow's `resize(..., box=...)`."""

    # Files are not cut for it as for the encoders behind it.
    cuts_originals = True

    def __init__(self, size: tuple[int, int], **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.size = size

    def call(self, inputs: Any) -> Tensor:
        """Returns images (batch, [num_boxes,] height, width, channels)."""
        whole = [[0.0, 0.0, 1.0, 1.0]]
        images, boxes = inputs if isinstance(inputs, list) else (inputs, whole)
        boxes = ops.convert_to_tensor(boxes, "float32")
        height, width = ops.shape(images)[1:3]
        top, left, bottom, right = ops.unstack(boxes, 4, axis=-1)
        rows = _resizing(top, bottom, height, self.size[0])
        columns = _resizing(left, right, width, self.size[1])
        planes = ops.transpose(images, (0, 3, 1, 2))
        if len(boxes.shape) == 3:
            planes = planes[:, None]
        planes = ops.matmul(rows[..., None, :, :], planes)
        columns = ops.swapaxes(columns, -1, -2)[..., None, :, :]
        return ops.moveaxis(ops.matmul(planes, columns), -3, -1)

    def compute_output_shape(self, shapes: Any) -> tuple:
        """Returns (batch, [num_boxes,] *size, channels)."""
        shape, *boxes = shapes if isinstance(shapes, list) else [shapes]
        several = boxes[0][1:-1] if boxes else ()
        return shape[0], *several, *self.size, shape[-1]


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
    sides = [_central(ops.sum(weights, axis=axis), mass) for axis in (2, 1)]
    low, high = (ops.stack(ends, -1) for ends in zip(*sides, strict=True))
    size = ops.cast(ops.stack(image_size), "float32")
    side = ops.max((high - low) * size, axis=-1, keepdims=True)
    sides = ops.minimum(side / size, 1.0)
    start = ops.clip((low + high - sides) / 2.0, 0.0, 1.0 - sides)
    return ops.concatenate([start, start + sides], axis=-1)


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


def _windows(weights, window, count):
    """Boxes (batch, 4), each the best once the mass in the last is gone."""
    rows, columns = weights.shape[1:]
    tops, of_rows = _window_starts(rows, window)
    lefts, of_columns = _window_starts(columns, window)
    found = []
    for _ in range(count):
        held = full_matmul(full_matmul(of_rows, weights), of_columns.T)
        held = ops.reshape(held, (-1, len(tops) * len(lefts)))
        # Converters to ONNX know no `argmax`.
        best = ops.top_k(held, 1)[1][:, 0]
        row, column = best // len(lefts), best % len(lefts)
        top = ops.take(ops.convert_to_tensor(tops), row)
        left = ops.take(ops.convert_to_tensor(lefts), column)
        ends = [top, left, top + window, left + window]
        found.append(ops.stack(ends, axis=-1))
        down = ops.take(ops.convert_to_tensor(of_rows), row, axis=0)
        across = ops.take(ops.convert_to_tensor(of_columns), column, axis=0)
        weights = weights * (1.0 - down[:, :, None] * across[:, None])
    return found


def _window_starts(cells, window):
    """Starts of windows, one of which is best, and the cells they hold."""
    # The mass is linear between positions where an end meets a cell's border.
    width = window * cells
    borders = np.arange(cells + 1.0)
    starts = np.concatenate([borders, borders - width])
    starts = np.unique(np.clip(starts, 0.0, cells - width).round(6))
    ends = np.minimum(starts[:, None] + width, borders[1:])
    held = np.maximum(ends - np.maximum(starts[:, None], borders[:-1]), 0.0)
    return (starts / cells).astype("float32"), held.astype("float32")


def _resizing(low, high, pixels, size):
    """Matrices (..., size, pixels) that resize between two shares."""
    count = ops.cast(pixels, "float32")
    scale = ((high - low) * count / size)[..., None]
    middles = ops.arange(size, dtype="float32") + 0.5
    centers = (low * count)[..., None] + middles * scale
    positions = ops.arange(pixels, dtype="float32") + 0.5
    distances = ops.abs(positions - centers[..., None])
    weights = ops.relu(1.0 - distances / ops.maximum(scale, 1.0)[..., None])
    return weights / ops.sum(weights, axis=-1, keepdims=True)


def _combined(looks, combine):
    last = EmbeddingNormalization("l2", dtype="float32", name="normalization")
    if combine in ("first", "second"):
        return last(looks[combine == "second"])
    unit = EmbeddingNormalization("l2", dtype="float32", name="unit")
    looks = [unit(look) for look in looks]
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
    own = {id(layer): layer.name for layer in first.layers}
    shared = [x for x in getattr(second, "layers", ()) if id(x) in own]
    found = {id(v) for layer in shared for v in layer.variables}
    everywhere = {id(v) for v in getattr(second, "variables", ())}
    if everywhere & {id(v) for v in first.variables} != found:
        raise ValueError(
            "`first` and `second` must share whole layers to be saved. "
            "Received: encoders that share layers inside of layers."
        )
    is_input = keras.layers.InputLayer
    return {x.name: own[id(x)] for x in shared if not isinstance(x, is_input)}


def _image_size(name, encoder):
    shape = getattr(input_of(encoder), "shape", ())
    if len(shape) != 4 or None in shape[1:]:
        raise ValueError(
            f"`{name}` must take images of a known size. Received: an encoder "
            f"of inputs of shape {tuple(shape)}."
        )
    return shape[1:3]


def _with_weights(encoder):
    """The model from images to the embedding and the pooling's weights."""
    found = [one for one in encoder.layers if hasattr(one, "pooling_weights")]
    if len(found) != 1:
        raise ValueError(
            "`first` must have one pooling with `pooling_weights`, such as "
            f"GeneralizedSumPooling. Received: {len(found)} in the "
            f"{len(encoder.layers)} layers of {encoder.name!r}."
        )
    features = keras.tree.flatten(found[0].input)[0]
    if len(features.shape) != 4:
        raise ValueError(
            "`first` must pool a feature map. Received: features of shape "
            f"{tuple(features.shape)}. Build it with `grid_shape`."
        )
    weights = _PoolingWeights(found[0])(features)
    return keras.Model(input_of(encoder), [embedding_tensor(encoder), weights])
