"""Image batches for training and scoring: read, crop, resize, flip."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_choice
from keras_gsp._labels import as_host_array, checked_labels, label_codes
from keras_gsp.data import crops
from keras_gsp.data.decoding import MAX_PIXELS
from keras_gsp.data.host_batches import (
    HostBatches,
    names_with_boxes,
    unread_files,
)
from keras_gsp.data.image_folder import names_below
from keras_gsp.data.image_set import checked_boxes
from keras_gsp.data.preprocessing import Preprocessing
from keras_gsp.data.untuned import has_tensorflow, tf, untuned


def augmented_batches(
    images: Sequence[str] | np.ndarray,
    labels: Any,
    index_batches: Any,
    *,
    size: int = 227,
    resize: int | None = 256,
    crop: str | None = "area",
    flip: bool = True,
    seed: int = 0,
    first_step: int = 0,
    max_pixels: int = MAX_PIXELS,
    positions: np.ndarray | None = None,
) -> Any:
    """Turns batches of indices into batches of augmented images.

    Each image is a random crop, resized once to a square and mirrored with
    probability 1/2. The draws depend on `seed`, the step and the position in
    the batch alone: a run resumed with `first_step` sees the same pixels.

    Args:
        images: file names, a sequence or array of strings; or pixels
            (num_images, height, width, channels), uint8.
        labels: (num_images,), integers or strings. Strings, and integers that
            32 bits do not hold, become 0, 1, ... in their sorted order.
        index_batches: what `class_balanced_batches` returns, or another
            `tf.data.Dataset` of (batch,) integers of one known length.
        size: side of the result in pixels, at most `resize`.
        resize: shorter side of the image, in pixels, that `size` and the crop
            `"side"` refer to. `None`: with `crop=None` the whole image.
        crop: `"area"`: 0.16 to 1 of the image's area, as the benchmark's code,
            which computed the published numbers. `"side"`: a side of 40 to 256
            pixels, as its text. `None`: the center crop of the evaluation.
        flip: whether to mirror half of the images.
        seed: integer.
        first_step: step at which the batches start.
        max_pixels: largest number of pixels of a file to decode.
        positions: places in a batch: only these of each batch are read, the
            part of one of several processes.

    Returns:
        `tf.data.Dataset` of (images, labels): (batch, size, size, channels)
        uint8 and (batch,) int64; files give three channels. A file that
        cannot be read ends the iteration with an error that names it. Of a
        `PyDataset` one with NumPy arrays, whose crops are other random ones.

    Raises:
        TypeError: labels that are neither integers nor strings.
        ValueError: arguments that do not fit together.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pixels = np.zeros((8, 40, 50, 3), "uint8")
    labels = np.repeat(["cat", "dog"], 4)
    indices = gsp.data.class_balanced_batches(
        labels, classes_per_batch=2, samples_per_class=2
    )
    batches = gsp.data.augmented_batches(pixels, labels, indices, size=32)
    images, classes = next(iter(batches))
    assert images.shape == (4, 32, 32, 3)
    ```

    Reference:
        Musgrave et al., A Metric Learning Reality Check (ECCV 2020),
        section 4.
    """
    check_choice("area", "side", None, crop=crop)
    center = Preprocessing(size, resize, max_pixels=max_pixels)
    if resize is None and crop == "side":
        raise ValueError(
            '`resize` must be given with crop="side", whose sides refer to '
            "it. Received: resize=None."
        )
    source = _source(images)
    labels = _codes(labels, len(source))[0]
    places = _checked_positions(positions, index_batches)
    # "area" does not use `resize`.
    options: dict[str, Any] = {"crop": crop, "resize": resize or 1}
    if isinstance(index_batches, keras.utils.PyDataset):
        options["flip"] = flip
        own = {"seed": seed, "first_step": first_step, "positions": places}
        given = index_batches, source, labels, center
        return HostBatches(*given, augment=options, **own)

    def prepare(step, place, _, image):
        position = tf.gather(tf.constant(places, "int64"), place)
        fold_in = tf.random.experimental.stateless_fold_in
        drawn = fold_in(fold_in([seed, 0], step), position)
        crop_seed, flip_seed = tf.unstack(tf.random.split(drawn, 2))
        window = None
        if crop is not None:
            window = partial(crops.random_window, seed=crop_seed, **options)
        image = _cut(image, center, window)
        if flip:
            image = tf.image.stateless_random_flip_left_right(image, flip_seed)
        return image

    batches = tf.data.Dataset.zip(
        tf.data.Dataset.counter(first_step),
        index_batches.map(lambda indices: tf.gather(indices, places)),
    )
    rest = source, labels, len(places), center, source
    return _mapped(batches, prepare, *rest)


def evaluation_batches(
    images: Sequence[str] | np.ndarray,
    labels: Any = None,
    *,
    preprocessing: Preprocessing | None = None,
    size: int | None = 227,
    resize: int | None = None,
    boxes: Any = None,
    batch_size: int = 64,
    max_pixels: int = MAX_PIXELS,
) -> Any:
    """Turns images into batches to score, to index or to embed.

    Args:
        images: as for `augmented_batches`.
        labels: (num_images,), integers or strings, or `None`.
        preprocessing: how images are cropped and resized, in place of `size`,
            `resize` and `max_pixels`. The published numbers are scored with
            `Preprocessing()`, which crops.
        size: side of the result in pixels, at most `resize`. `None`: each
            image at its own size, in batches of one.
        resize: length of the shorter side before the crop, in pixels. `None`:
            the whole image.
        boxes: (num_images, 4), the part of each upright image to take: x and
            y of its upper left corner, width and height, in pixels, rounded.
        batch_size: images per batch; the last batch may be shorter.
        max_pixels: largest number of pixels of a file to decode.

    Returns:
        `tf.data.Dataset` of images, (batch, size, size, channels) uint8, in
        the order given; of (images, labels) if labels are given, int64. Labels
        become codes as for `augmented_batches`, whose labels the attribute
        `class_names` has, else `None`. The attribute `ids` has the path of each
        file below the folder that all share, or is `None` for pixels and for a
        file that is there twice. A file that cannot be read ends the iteration
        with an error that names it. Without TensorFlow a
        `keras.utils.PyDataset` of NumPy arrays.

    Raises:
        TypeError: labels that are neither integers nor strings.
        ValueError: arguments that contradict each other, or a box outside of
            its image. Outside of its file it ends the iteration, like a file
            that cannot be read.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pixels = np.zeros((5, 40, 50, 3), "uint8")
    batches = gsp.data.evaluation_batches(pixels, size=32, resize=36)
    assert next(iter(batches)).shape == (5, 32, 32, 3)
    ```
    """
    given = Preprocessing(size, resize, max_pixels=max_pixels)
    if preprocessing is None:
        preprocessing = given
    elif given not in (Preprocessing(resize=None), preprocessing):
        raise ValueError(
            "`size`, `resize` and `max_pixels` must not contradict "
            f"`preprocessing`. Received: {given} and {preprocessing}."
        )
    source, class_names = _source(images), None
    if labels is not None:
        labels, class_names = _codes(labels, len(source))
    if boxes is not None:
        sides = source.shape[1:3] if source.ndim == 4 else None
        boxes = checked_boxes(boxes, len(source), sides)
    if preprocessing.height is None:
        batch_size = 1
    batches: Any
    if has_tensorflow():
        batches = _evaluated(source, labels, boxes, batch_size, preprocessing)
    else:
        ends = range(batch_size, len(source), batch_size)
        rows = np.split(np.arange(len(source)), ends)
        batches = HostBatches(rows, source, labels, preprocessing, boxes=boxes)
    # Indexes compare it with what their encoder expects, and name the images.
    batches.preprocessing = preprocessing
    batches.class_names = class_names
    batches.ids = _ids(source)
    return batches


def _evaluated(source, labels, boxes, batch_size, preprocessing):
    inside = crops.evaluation_window(preprocessing.crop_fraction)
    batches = tf.data.Dataset.range(len(source)).batch(batch_size).enumerate()

    def prepare(step, place, index, image):
        if boxes is None:
            return _cut(image, preprocessing)
        box = tf.gather(tf.constant(boxes, "int32"), index)
        return _cut(image, preprocessing, crops.boxed_window(box, inside))

    names = names_with_boxes(source, boxes)
    own = source, labels, batch_size, preprocessing, names
    return _mapped(batches, prepare, *own)


def _ids(source):
    if source.ndim == 4:
        return None
    names = [name.decode("utf-8", "surrogateescape") for name in source]
    if len(set(names)) < len(names):
        return None
    return names_below(names, os.path.dirname(os.path.abspath(names[0])))


def _mapped(batches, prepare, source, labels, length, preprocessing, names):
    """Prepares images of (step, indices) one by one; names unreadable files."""
    # An element whose decoder raises is dropped. Each batch ends with an extra
    # row that cannot fail; if images are missing before it, the error names
    # their files. A nested data set per batch would cost a quarter of the time.
    is_file = source.ndim == 1
    channels = preprocessing.channels if is_file else source.shape[-1]
    with tf.device("CPU"):
        source = tf.convert_to_tensor(source)
        if labels is not None:
            labels = tf.constant(labels, "int64")
    shape = (preprocessing.height, preprocessing.width, channels)
    is_open = None in shape
    # `None` where the last batch may be shorter.
    known_length = batches.element_spec[1].shape[0]

    def row(step, place, indices):
        image = tf.cond(
            place < 0,
            lambda: tf.zeros([side or 1 for side in shape], "uint8"),
            lambda: prepare(
                step, place, indices[place], tf.gather(source, indices[place])
            ),
        )
        image = tf.ensure_shape(image, shape)
        if is_open:  # Strings of any length fit into one batch.
            image = tf.io.serialize_tensor(image)
        return image, place, indices

    def finished(images, places, indices):
        indices = tf.boolean_mask(indices[0], indices[0] >= 0)
        indices = tf.ensure_shape(indices, (known_length,))
        checks = []
        if is_file:
            own = tf.gather(names, indices)
            checks = [_all_read(own, places, preprocessing.max_pixels)]
        with tf.control_dependencies(checks):
            images = images[:-1]
            if is_open:
                images = tf.io.parse_tensor(images[0], "uint8")[None]
            images = tf.ensure_shape(images, (known_length, *shape))
        if labels is None:
            return images
        return images, tf.gather(labels, indices)

    # The functions branch on Python values alone: converting took seconds.
    plain = tf.autograph.experimental.do_not_convert
    rows = plain(partial(_rows_of_batch, length))
    num_batches = batches.cardinality()
    elements = batches.map(rows).unbatch()
    elements = elements.map(plain(row), num_parallel_calls=tf.data.AUTOTUNE)
    if is_file:
        elements = elements.ignore_errors(log_warning=False)
    batches = elements.batch(length + 1).map(plain(finished))
    if num_batches != tf.data.UNKNOWN_CARDINALITY:
        known = tf.data.experimental.assert_cardinality(num_batches)
        batches = batches.apply(known)
    return untuned(batches.prefetch(2))


def _rows_of_batch(length, step, indices):
    """Step, place and all indices for each image, and for the extra row."""
    indices = tf.cast(indices, "int64")
    count = tf.size(indices, "int64")
    # Place -1 is the extra row; a short batch is filled with index -1.
    filled = tf.pad(indices, [[0, length - count]], constant_values=-1)
    places = tf.concat([tf.range(count), [-1]], 0)
    steps = tf.fill([count + 1], step)
    return steps, places, tf.tile(filled[None], [count + 1, 1])


def _all_read(names, places, max_pixels):
    """Asserts that every place of a batch before the extra row was read."""
    places = places[: tf.argmin(places)]
    is_read = tf.scatter_nd(
        places[:, None], tf.ones_like(places), tf.shape(names, "int64")
    )
    unread = tf.boolean_mask(names, is_read == 0)
    words = [unread_files(max_pixels), unread]
    return tf.debugging.Assert(tf.reduce_all(is_read > 0), words, summarize=10)


def _cut(image, preprocessing, window=None):
    if image.dtype == tf.string:
        return preprocessing.decode(tf.io.read_file(image), window)
    return preprocessing.cut(image, window)


def _source(images):
    """File names as bytes, or uint8 pixels, in a NumPy array."""
    images = as_host_array(images, "images")
    if images.dtype.kind == "U" and images.ndim == 1:
        # A name that is no UTF-8 keeps its bytes.
        return np.char.encode(images, "utf-8", "surrogateescape")
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(
            "`images` must be file names or uint8 (num_images, height, width, "
            f"channels). Received: {images.dtype} of shape {images.shape}."
        )
    return images


def _codes(labels, length):
    """Returns integers that every backend holds, and the names of codes."""
    labels = checked_labels(labels, length)
    if labels.dtype.kind in "bi" and (labels == labels.astype("int32")).all():
        return labels, None
    return label_codes(labels)


def _checked_positions(positions, index_batches):
    """The positions to read of each batch: all by default."""
    if isinstance(index_batches, keras.utils.PyDataset):
        shape = index_batches[0].shape
    elif has_tensorflow():
        shape = index_batches.element_spec.shape
        if shape.rank != 1 or shape[0] is None:
            raise ValueError(
                "`index_batches` must hold vectors of one known length; batch "
                f"with `drop_remainder=True`. Received: {shape}."
            )
    else:
        raise TypeError(
            "`index_batches` must come from `class_balanced_batches`. "
            f"Received: {type(index_batches).__name__}."
        )
    every = np.arange(shape[0])
    found = every if positions is None else np.asarray(positions)
    if not found.size or not np.isin(found, every).all():
        raise ValueError(
            "`positions` must be some integers in [0, batch), a batch of "
            f"{shape[0]}. Received: positions={positions}."
        )
    return found
