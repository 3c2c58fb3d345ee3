"""What an export serves: an encoder, and how its images are prepared."""

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_count
from keras_gsp._encoding import embedding_of, embedding_tensor
from keras_gsp._tensor import Tensor
from keras_gsp.data.crops import boxed_window as boxed_on_host
from keras_gsp.data.decoding import MAX_PIXELS
from keras_gsp.data.preprocessing import (
    Preprocessing,
    agreed,
    preprocessing_of,
)
from keras_gsp.models.lora import merge_lora
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.serving.graph_decoding import (
    are_inside,
    boxed_window,
    cut_encoded,
    evaluation_window,
    tf,
    upright_sides,
)
from keras_gsp.retrieval.space import check_space, space_fingerprint

# Status of an image.
OK = "ok"
UNREADABLE = "unreadable: not a whole JPEG, PNG, 24-bit BMP or WebP image"
NOT_FINITE = "failed: the embedding is not finite"


class ServedEncoder:
    """Decodes and embeds images: the common part of all exports.

    `needs_tensorflow`: whether it is exported; `export_encoder` describes the
    other options.
    """

    def __init__(
        self,
        encoder: keras.Model,
        index: SearchIndex | None = None,
        *,
        needs_tensorflow: bool = True,
        image_size: int | tuple[int, int] | None = None,
        crop_fraction: float | str | None = "auto",
        max_pixels: int = MAX_PIXELS,
        metadata: dict[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        backend = keras.backend.backend()
        if needs_tensorflow and backend != "tensorflow":
            raise RuntimeError(
                "An export needs the backend tensorflow. "
                f"Received: {backend!r}. Save the encoder as .keras and "
                "export it where KERAS_BACKEND=tensorflow."
            )
        check_count(max_pixels=max_pixels)
        self.metadata, self.overwrite = metadata or {}, overwrite
        check_space(encoder, index)
        # Merged weights differ from those that made the index by rounding.
        self.space = space_fingerprint(encoder)
        self.encoder = encoder = merge_lora(encoder)
        # Height, width and channels.
        self.image_shape = _image_shape(encoder, image_size)
        self.preprocessing = _expected_cut(
            encoder, index, crop_fraction, self.image_shape, int(max_pixels)
        )
        self.embedding_size = embedding_tensor(encoder).shape[-1]

    @property
    def dtype(self) -> str:
        """Of the encoder's images."""
        return str(self.encoder.inputs[0].dtype)

    @functools.cached_property
    def decoded(self) -> Any:
        """Decodes and cuts files as `gsp.data.image_batches` does.

        A `tf.function` of strings and boxes (x, y, width, height; zeros for
        all of an image) that returns images, uint8, black where unreadable,
        and status, `"ok"` or an error. One image at a time of its own size.
        """
        expected, shape = self.preprocessing, self.image_shape
        inside = evaluation_window(expected.crop_fraction)
        is_open, limit = None in shape, expected.max_pixels

        def cut(content, box):
            image = cut_encoded(
                content,
                boxed_window(box, inside),
                None if is_open else shape[:2],
                shorter_side=expected.shorter_side,
                channels=shape[2],
                max_pixels=limit,
                background=expected.background,
            )
            return tf.io.serialize_tensor(image) if is_open else image

        def decoded(contents, boxes):
            given, boxes = boxes, _rounded(boxes)
            nothing = tf.zeros([side or 1 for side in shape], "uint8")
            if is_open:
                nothing = tf.io.serialize_tensor(nothing)
            with tf.device("/CPU:0"):
                images, is_read = _each(cut, (contents, boxes), nothing)
                status = tf.where(is_read, OK, UNREADABLE)
                # Headers are only read where an image could not be.
                status = tf.cond(
                    tf.reduce_all(is_read),
                    lambda: status,
                    lambda: _reasons(contents, boxes, given, status, limit),
                )
            if is_open:
                content = tf.where(is_read[0], images[0], nothing)
                images = tf.io.parse_tensor(content, "uint8")[None]
            return tf.ensure_shape(images, (None, *shape)), status

        specs = tf.TensorSpec([None], "string"), tf.TensorSpec([None, 4])
        return tf.function(decoded, input_signature=specs, autograph=False)

    def embedded_bytes(self, image_bytes: Tensor) -> tuple[Tensor, Tensor]:
        """Embeds files (batch,); also returns the status of each.

        Rows of other files than those whose status is "ok" are zeros.
        """

        def embedded(contents):
            boxes = tf.zeros([tf.size(contents), 4])
            images, status = self.decoded(contents, boxes)
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

    def embedded_files(
        self, contents: list[bytes], boxes: np.ndarray
    ) -> tuple[np.ndarray, list[str]]:
        """Returns embeddings, float32, and the status of each file.

        One file at a time where images keep their own size. Pillow reads
        them, on every backend.
        """
        with ThreadPoolExecutor() as threads:
            read = list(threads.map(self._read, contents, boxes.tolist()))
        images, status = zip(*read, strict=True)
        outputs = self.encoder.predict_on_batch(
            np.stack(images).astype(self.dtype)
        )
        rows = keras.ops.convert_to_numpy(embedding_of(outputs))
        words = list(status)
        for row in np.flatnonzero(~np.isfinite(rows).all(axis=1)):
            if words[row] == OK:
                words[row] = NOT_FINITE
        return rows.astype("float32"), words

    def _read(self, contents, box):
        """Pixels and status of a file; black where it cannot be read."""
        window = None
        if any(box):
            window = partial(boxed_on_host, box, self.preprocessing.window)
        try:
            return self.preprocessing.decode(contents, window), OK
        except ValueError as error:
            nothing = np.zeros([side or 1 for side in self.image_shape], "u1")
            # Of `contents` it says their length, which makes no reason.
            reason = "no whole image of a known format"
            if not str(error).startswith("`contents`"):
                reason = str(error)
            is_box = reason.startswith("outside of")
            return nothing, reason if is_box else f"unreadable: {reason}"

    @functools.cached_property
    def _answer(self) -> Any:
        # Traced once, for all signatures.
        def answer(images):
            return embedding_of(self.encoder(images, training=False))

        spec = tf.TensorSpec((None, *self.image_shape), self.dtype)
        return tf.function(answer, input_signature=[spec], autograph=False)


def boxes_of(box: Any, count: int) -> np.ndarray:
    """x, y, width and height, (count, 4), float32; zeros for whole images.

    From one for all images or one for each; `ValueError` for others.
    """
    if box is None:
        return np.zeros((count, 4), "float32")
    found = np.asarray(box, "float32")
    is_it = found.shape in ((4,), (count, 4)) and np.isfinite(found).all()
    # (0, 0, 1, 1) is the whole image in shares, not its first pixel.
    if not is_it or (found[..., 2:] < 1).any() or (found <= 1).all(-1).any():
        raise ValueError(
            "`box` must be four numbers in pixels, x, y, width and height, the "
            "last two at least 1, not shares, or so many for each of the "
            f"{count} images. Received: box={box!r}."
        )
    return np.broadcast_to(found, (count, 4))


def _rounded(boxes):
    """Whole pixels; a box that is smaller than one becomes too large."""
    is_given = tf.reduce_any(boxes != 0, axis=1, keepdims=True)
    is_small = is_given & ~tf.reduce_all(boxes[:, 2:] >= 1, 1, keepdims=True)
    refused = tf.constant([0, 0, 2**30, 2**30], "int32")
    return tf.where(is_small, refused, tf.cast(tf.round(boxes), "int32"))


def _expected_cut(encoder, index, crop_fraction, shape, max_pixels):
    """The preprocessing; the largest centered square if unknown."""
    if crop_fraction not in ("auto", None) and (
        isinstance(crop_fraction, str) or not 0 < crop_fraction <= 1
    ):
        raise ValueError(
            '`crop_fraction` must be in (0, 1], None or "auto". '
            f"Received: crop_fraction={crop_fraction!r}."
        )
    *sides, channels = shape
    size = tuple(sides)
    of_index = getattr(index, "preprocessing", None)
    expected = agreed({"encoder": preprocessing_of(encoder), "index": of_index})
    if expected is None:
        fraction = 1.0 if crop_fraction == "auto" else crop_fraction
        expected = Preprocessing(size, fraction and max(size) / fraction)
        crop_fraction = "auto"
    is_cut = crop_fraction in ("auto", expected.crop_fraction)
    if not is_cut or (expected.height, expected.width) != size:
        raise ValueError(
            "`image_size` and `crop_fraction` must be those of the encoder's "
            "or the index's preprocessing. Received: "
            f"image_size={size}, crop_fraction={crop_fraction}, {expected}."
        )
    return dataclasses.replace(
        expected, channels=channels, max_pixels=max_pixels
    )


def _image_shape(encoder, image_size):
    """Height, width and channels of an encoder's images."""
    shapes = [tuple(tensor.shape) for tensor in encoder.inputs or []]
    if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][3] is None:
        raise ValueError(
            "`encoder` must have one input (batch, height, width, channels). "
            f"Received: inputs of shape {shapes}."
        )
    _, *own, channels = shapes[0]
    known = preprocessing_of(encoder)
    if image_size is None and known is not None and None in own:
        if known.height is None:
            return None, None, channels
        image_size = known.height, known.width
    if isinstance(image_size, int):
        image_size = (image_size, image_size)
    sizes = tuple(own if image_size is None else image_size)
    pairs = zip(own, sizes, strict=True)
    if None in sizes or any(mine not in (None, size) for mine, size in pairs):
        raise ValueError(
            "`image_size` must be given where the encoder leaves it open, and "
            f"equal to it otherwise. Received: image_size={sizes}, the "
            f"encoder takes {tuple(own)}."
        )
    return *sizes, channels


def _reasons(contents, boxes, given, status, max_pixels):
    """Replaces the status of images refused for their size or their box."""
    nothing = tf.zeros([2], "int64")
    sides, is_read = _each(upright_sides, (contents,), nothing)

    def text(rows):
        words = tf.strings.as_string(rows, shortest=rows.dtype.is_floating)
        return tf.strings.reduce_join(words, 1, separator=", ")

    message = "outside of its (" + text(sides[:, ::-1]) + ") pixels: box=("
    message += text(given) + ")"
    is_bad = is_read & ~are_inside(boxes, sides)
    status = tf.where(is_bad, message, status)
    pixels = tf.reduce_prod(sides, axis=1)
    words = tf.strings.as_string(pixels)
    message = "too large: " + words + f" pixels, the limit is {max_pixels}"
    return tf.where(is_read & (pixels > max_pixels), message, status)


def _each(function, inputs, nothing):
    """Maps each string; one that raises gives `nothing` and `False`."""
    # TensorFlow's decoders raise, which ends a whole batch. Inside a tf.data
    # pipeline an element that raises can be dropped instead.
    count = tf.size(inputs[0], out_type="int64")
    elements = tf.data.Dataset.from_tensor_slices((tf.range(count), *inputs))
    mapped = elements.map(
        lambda place, *given: (place, function(*given)),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).ignore_errors(log_warning=False)
    # One more element keeps the pipeline from being empty.
    last = tf.data.Dataset.from_tensors((count, nothing))
    mapped = mapped.concatenate(last).batch(count + 1)
    places, values = mapped.get_single_element()
    places, shape = places[:, None], tf.shape(values, "int64")
    shape = tf.concat([[count + 1], shape[1:]], 0)
    values = tf.scatter_nd(places, values, shape)
    is_mapped = tf.scatter_nd(places, tf.ones_like(places[:, 0]), [count + 1])
    return values[:-1], is_mapped[:-1] > 0
