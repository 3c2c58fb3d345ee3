"""What is served: an encoder, and how its images are read."""

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_gsp._compat import layers_at_any_depth
from keras_gsp._encoding import embedding_of, embedding_tensor
from keras_gsp._tensor import Tensor
from keras_gsp.data.crops import boxed_window
from keras_gsp.data.decoding import WHITE, image_size
from keras_gsp.data.preprocessing import (
    Preprocessing,
    agreed,
    preprocessing_of,
)
from keras_gsp.models.lora import merge_lora
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.serving.graph_decoding import (
    cut_encoded,
    stored_sides,
    tf,
)
from keras_gsp.retrieval.space import check_space, space_fingerprint

# Status of an image.
OK = "ok"
UNREADABLE = "unreadable: not a whole JPEG, PNG, 24-bit BMP or WebP image"
NOT_FINITE = "failed: the embedding is not finite"
# Files that are read, decoded and embedded at once.
BLOCK = 32
# Layers of networks of `keras.applications` that take scaled pixels.
_UNSCALED = {
    "out_relu": "MobileNetV2",
    "conv_pw_13_relu": "MobileNet",
    "conv5_block3_out": "ResNet",
    "post_relu": "ResNetV2",
    "block5_conv3": "VGG",
    "mixed10": "InceptionV3",
    "conv_7b_ac": "InceptionResNetV2",
    "block14_sepconv2_act": "Xception",
    "conv5_block16_concat": "DenseNet",
}


class ServedEncoder:
    """Reads and embeds images: the common part of `Retriever` and exports.

    Attributes:
        encoder: with LoRA factors merged.
        space: fingerprint of the encoder's space.
        preprocessing: how images are cut, of encoder or index.
        image_shape: height, width and channels; `None`: the image's own.
    """

    def __init__(
        self,
        encoder: keras.Model,
        index: SearchIndex | None = None,
        *,
        is_exported: bool = False,
    ) -> None:
        backend = keras.backend.backend()
        if is_exported and backend != "tensorflow":
            raise RuntimeError(
                "An export needs the backend tensorflow. "
                f"Received: {backend!r}. Save the encoder as .keras and "
                "export it where KERAS_BACKEND=tensorflow; install TensorFlow "
                "with `pip install 'keras-gsp[tf]'`."
            )
        check_space(encoder, index)
        # Merged weights differ from those that made the index by rounding.
        self.space = space_fingerprint(encoder)
        self.encoder = encoder = merge_lora(encoder)
        self.image_shape = _image_shape(encoder)
        self.dtype = str(encoder.inputs[0].dtype)
        self.preprocessing = _preprocessing(encoder, index, self.image_shape)
        self.embedding_size = embedding_tensor(encoder).shape[-1]
        if network := _unscaled_network(encoder):
            warnings.warn(
                f"`encoder` holds {network}, which takes scaled pixels, and no "
                "layer that scales them: it receives [0, 255]. Build it with "
                "`preprocessing=gsp.data.Preprocessing.for_application(...)`, "
                "or put a `keras.layers.Rescaling` before it.",
                stacklevel=3,
            )

    def embed(
        self, files: Sequence[Any], boxes: np.ndarray | None = None
    ) -> tuple[np.ndarray, list[str]]:
        """Embeds image files, paths or bytes, on every backend.

        `boxes` (files, 4) are the part of each, x, y, width and height in
        pixels, zeros for all of it. Returns embeddings (files, embedding_size),
        float32, zeros where the status of a file is not "ok"; and each status.
        """
        rows = np.zeros((len(files), self.embedding_size), "float32")
        status = [OK] * len(files)
        if boxes is None:
            boxes = np.zeros((len(files), 4))
        size = 1 if None in self.image_shape else BLOCK
        with ThreadPoolExecutor() as threads:

            def started(first):
                some = range(first, min(first + size, len(files)))
                return some, [
                    threads.submit(self._pixels, files[i], boxes[i])
                    for i in some
                ]

            block = started(0)
            while block[0]:
                some, tasks = block
                block = started(some.stop)  # while this one is embedded
                read = {}
                for i, task in zip(some, tasks, strict=True):
                    image, status[i] = task.result()
                    if status[i] == OK:
                        read[i] = image
                if read:
                    rows[[*read]] = self._predicted(np.stack([*read.values()]))
        for i in np.flatnonzero(~np.isfinite(rows).all(axis=1)):
            rows[i], status[i] = 0.0, NOT_FINITE
        return rows, status

    def _pixels(self, file, box):
        """Pixels of a file, `None` if it is refused, and its status."""
        cut, window = self.preprocessing, None
        if np.any(box):
            window = partial(boxed_window, box, cut.window)
        try:
            contents = file if isinstance(file, bytes) else file.read_bytes()
            num_pixels = math.prod(image_size(contents))
            if num_pixels > cut.max_pixels:
                words = f"too large: {num_pixels} pixels, the limit is "
                return None, f"{words}{cut.max_pixels}"
            return cut.decode(contents, window), OK
        except OSError as error:
            return None, f"unreadable: {error.strerror or error}"
        except ValueError as error:
            is_box = str(error).startswith("outside of")
            return None, str(error) if is_box else UNREADABLE

    def _predicted(self, images):
        """Embeddings of images, (images, embedding_size)."""
        # A backend compiles for few numbers of images.
        count = len(images)
        padded = 1 << (count - 1).bit_length()
        images = np.resize(images, (padded, *images.shape[1:]))
        outputs = self.encoder.predict_on_batch(images.astype(self.dtype))
        rows = keras.ops.convert_to_numpy(embedding_of(outputs))
        return rows[:count].astype("float32")

    def embedded_bytes(self, image_bytes: Tensor) -> tuple[Tensor, Tensor]:
        """As `embed` inside a graph, of strings (batch,)."""

        def embedded(contents):
            images, status = self.decoded(contents)
            rows = self._answer(tf.cast(images, self.dtype))
            return tf.cast(rows, "float32"), status

        if None not in self.image_shape:
            rows, status = embedded(image_bytes)
        else:
            row = tf.TensorSpec([1, self.embedding_size])
            rows, status = tf.map_fn(
                embedded,
                image_bytes[:, None],
                fn_output_signature=(row, tf.TensorSpec([1], "string")),
                parallel_iterations=1,  # so many images are in memory
            )
            rows = tf.reshape(rows, [-1, self.embedding_size])
            status = tf.reshape(status, [-1])
        is_finite = tf.reduce_all(tf.math.is_finite(rows), axis=1)
        status = tf.where((status == OK) & ~is_finite, NOT_FINITE, status)
        return tf.where((status == OK)[:, None], rows, 0.0), status

    @functools.cached_property
    def decoded(self) -> Any:
        """Decodes and cuts files in a graph, to the pixels of `embed`.

        A `tf.function` of strings that returns images, uint8, black where
        unreadable, and status. One image at a time of its own size.
        """
        cut, shape = self.preprocessing, self.image_shape
        is_open = None in shape

        def read(content):
            image = cut_encoded(content, cut, None if is_open else shape[:2])
            return tf.io.serialize_tensor(image) if is_open else image

        def decoded(contents):
            nothing = tf.zeros([side or 1 for side in shape], "uint8")
            if is_open:
                nothing = tf.io.serialize_tensor(nothing)
            with tf.device("/CPU:0"):
                images, is_read = _each(read, contents, nothing)
                status = tf.where(is_read, OK, UNREADABLE)
                # Headers are only read where an image could not be.
                status = tf.cond(
                    tf.reduce_all(is_read),
                    lambda: status,
                    lambda: _reasons(contents, status, cut.max_pixels),
                )
            if is_open:
                content = tf.where(is_read[0], images[0], nothing)
                images = tf.io.parse_tensor(content, "uint8")[None]
            return tf.ensure_shape(images, (None, *shape)), status

        spec = tf.TensorSpec([None], "string")
        return tf.function(decoded, input_signature=[spec], autograph=False)

    @functools.cached_property
    def _answer(self) -> Any:
        # Traced once, for all signatures.
        def answer(images):
            return embedding_of(self.encoder(images, training=False))

        spec = tf.TensorSpec((None, *self.image_shape), self.dtype)
        return tf.function(answer, input_signature=[spec], autograph=False)


def _preprocessing(encoder, index, image_shape):
    """That of encoder or index; without one the central square."""
    *size, channels = image_shape
    of_index = getattr(index, "preprocessing", None)
    expected = agreed({"encoder": preprocessing_of(encoder), "index": of_index})
    if expected is None:
        expected = Preprocessing(tuple(size), max(size), background=WHITE)
    if [expected.height, expected.width] != size:
        raise ValueError(
            "The preprocessing of encoder or index must have the size of the "
            f"encoder's input, {tuple(size)}. Received: {expected}."
        )
    return dataclasses.replace(expected, channels=channels)


def _unscaled_network(encoder):
    """Name of a known network that nobody scales pixels for, or `None`."""
    layers = list(layers_at_any_depth(encoder))
    scaling = keras.layers.Rescaling, keras.layers.Normalization
    if any(isinstance(layer, scaling) for layer in layers) or any(
        not isinstance(operation, keras.layers.Layer)
        for operation in getattr(encoder, "operations", ())
    ):
        return None
    for layer in layers:
        if layer.name in _UNSCALED:
            return _UNSCALED[layer.name]
        if type(layer).__module__.startswith("keras_hub.") and type(
            layer
        ).__name__.endswith("Backbone"):
            return type(layer).__name__
    return None


def _image_shape(encoder):
    """Height, width and channels of an encoder's images."""
    shapes = [tuple(tensor.shape) for tensor in encoder.inputs or []]
    if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][3] is None:
        raise ValueError(
            "`encoder` must have one input (batch, height, width, channels). "
            f"Received: inputs of shape {shapes}."
        )
    _, *size, channels = shapes[0]
    if None in size:
        if (known := preprocessing_of(encoder)) is None:
            raise ValueError(
                "`encoder` must have an input of a fixed size, or be built "
                "with `preprocessing=gsp.data.Preprocessing(...)`. "
                f"Received: an input of shape {shapes[0]}."
            )
        size = [known.height, known.width]
    return *size, channels


def _reasons(contents, status, max_pixels):
    """Replaces the status of images refused for their size."""
    sides, is_read = _each(stored_sides, contents, tf.zeros([2], "int64"))
    pixels = tf.reduce_prod(sides, axis=1)
    words = tf.strings.as_string(pixels)
    message = "too large: " + words + f" pixels, the limit is {max_pixels}"
    return tf.where(is_read & (pixels > max_pixels), message, status)


def _each(function, contents, nothing):
    """Maps each string; one that raises gives `nothing` and `False`."""
    # TensorFlow's decoders raise, which ends a whole batch. Inside a tf.data
    # pipeline an element that raises can be dropped instead.
    count = tf.size(contents, out_type="int64")
    elements = tf.data.Dataset.from_tensor_slices((tf.range(count), contents))
    mapped = elements.map(
        lambda position, content: (position, function(content)),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).ignore_errors(log_warning=False)
    # One more element keeps the pipeline from being empty.
    last = tf.data.Dataset.from_tensors((count, nothing))
    mapped = mapped.concatenate(last).batch(count + 1)
    positions, values = mapped.get_single_element()
    positions, shape = positions[:, None], tf.shape(values, "int64")
    shape = tf.concat([[count + 1], shape[1:]], 0)
    values = tf.scatter_nd(positions, values, shape)
    ones = tf.ones_like(positions[:, 0])
    is_mapped = tf.scatter_nd(positions, ones, [count + 1])
    return values[:-1], is_mapped[:-1] > 0
