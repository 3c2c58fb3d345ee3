"""Image batches for training and scoring: read, crop, resize, flip."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from keras_gsp.data import crops, decoding
from keras_gsp.data.decoding import MAX_PIXELS
from keras_gsp.data.untuned import untuned
from keras_gsp.ops.arguments import check_count


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

    A random crop of the image, resized to a square, mirrored with
    probability 1/2. Every draw is a function of `seed`, the step and the
    position in the batch, so that two runs see the same pixels whatever the
    number of threads, and a run resumed with `first_step` goes on exactly.
    Only the crop is decoded, and it is resized once: the papers resize the
    image to 256 pixels first and the crop again.

    Args:
        images: File names (sequence of str), or pixels
            (num_images, height, width, channels), uint8.
        labels: (num_images,), integers.
        index_batches: `tf.data.Dataset` of (batch,) integers, such as
            `keras_gsp.data.class_balanced` gives, all of one known length.
        size: Side of the images that come out, in pixels, at most `resize`.
        resize: Length in pixels of the shorter side to which the published
            sizes refer; only the ratio `size / resize` and the crop `"side"`
            depend on it. None: with `crop=None` the whole image is resized.
        crop: `"area"`: the crop covers 0.16 to 1 of the image, as in the
            benchmark's public code. The default, because the published
            numbers were computed by that code. `"side"`: a side of 40 to 256
            pixels, as in the benchmark's text, which allows crops down to
            1/40 of the image. None: the center crop of the evaluation.
        flip: Whether to mirror half of the images.
        seed: Integer.
        first_step: Step at which the batches start; those of a run that goes
            on at step t equal those of one that never stopped from t on.
        max_pixels: Pixels above which a file is not decoded, and reading
            fails: a small file can ask for gigabytes. Default 50 million.
        positions: Integers below the length of a batch: only these of each
            batch are read and come out, the part that one of several
            processes feeds. Default `None`: the whole batch.

    Returns:
        `tf.data.Dataset` of (images, labels): (batch, size, size, channels)
        uint8 and (batch,) int64; file names give three channels.

    Raises:
        ValueError: sizes that make no sense, an unknown crop, unequal
            lengths, or batches of unknown length.

    Example:

    ```python
    pixels = np.zeros((8, 40, 50, 3), "uint8")
    labels = np.repeat([0, 1], 4)
    indices = gsp.data.class_balanced(
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
    import tensorflow as tf

    _check_sizes(size, resize)
    crops.check_crop(crop)
    _check_resize(resize, crop)
    check_count(max_pixels=max_pixels)
    source, labels = _source(images), _checked_labels(images, labels)
    batch_size = _batch_size(index_batches)

    def cut(image, crop_seed):
        window = crops.evaluation_window(_fraction(size, resize))
        if crop is not None:
            window = partial(
                crops.random_window,
                seed=crop_seed,
                crop=crop,
                resize=resize or 1,  # "area" does not use it
            )
        return _cut(image, size, window, max_pixels)

    def prepare(step, position, index):
        drawn = tf.random.experimental.stateless_fold_in(
            tf.random.experimental.stateless_fold_in([seed, 0], step), position
        )
        crop_seed, flip_seed = tf.unstack(tf.random.split(drawn, 2))
        image = cut(source[index], crop_seed)
        if flip:
            image = tf.image.stateless_random_flip_left_right(image, flip_seed)
        return image, labels[index]

    steps = tf.data.Dataset.counter(first_step)
    batches = tf.data.Dataset.zip(steps, index_batches)
    positions = _checked_positions(positions, batch_size)
    batch_size = len(positions)
    positions = tf.constant(positions, "int64")
    singles = batches.map(
        lambda step, indices: (
            tf.fill([batch_size], step),
            positions,
            tf.gather(tf.cast(indices, "int64"), positions),
        )
    ).unbatch()
    return _in_batches(singles, prepare, batch_size, drop_remainder=True)


def evaluation_batches(
    images: Sequence[str] | np.ndarray,
    labels: Any = None,
    *,
    size: int = 227,
    resize: int | None = 256,
    batch_size: int = 64,
    max_pixels: int = MAX_PIXELS,
) -> Any:
    """Turns images into batches as the published numbers are scored.

    The image is scaled until its shorter side has `resize` pixels and the
    centered `size` x `size` square is kept; both in one resize. With
    `resize=size` that is the largest centered square, with `resize=None` the
    whole image, whose proportions change. `export_encoder` and
    `export_retriever` do the same, pixel by pixel, with
    `crop_fraction=size / resize`, 1.0 or None.

    Args:
        images: File names (sequence of str), or pixels
            (num_images, height, width, channels), uint8.
        labels: (num_images,), integers, or None.
        size: Side of the images that come out, in pixels, at most `resize`.
        resize: Length of the shorter side before the crop, in pixels; None
            resizes the whole image.
        batch_size: Images per batch; the last batch holds what is left.
        max_pixels: As for `augmented_batches`.

    Returns:
        `tf.data.Dataset` of images, (batch, size, size, channels) uint8, in
        the order given; of (images, labels) if labels are given.

    Raises:
        ValueError: sizes that make no sense or unequal lengths.

    Example:

    ```python
    pixels = np.zeros((5, 40, 50, 3), "uint8")
    batches = gsp.data.evaluation_batches(pixels, size=32, resize=36)
    assert next(iter(batches)).shape == (5, 32, 32, 3)
    ```
    """
    import tensorflow as tf

    _check_sizes(size, resize)
    check_count(max_pixels=max_pixels)
    window = crops.evaluation_window(_fraction(size, resize))
    source = _source(images)
    if labels is not None:
        labels = _checked_labels(images, labels)

    def prepare(index):
        image = _cut(source[index], size, window, max_pixels)
        return image if labels is None else (image, labels[index])

    return _in_batches(tf.data.Dataset.range(len(images)), prepare, batch_size)


def _in_batches(singles, prepare, batch_size, drop_remainder=False):
    import tensorflow as tf

    # It branches on Python values alone: converting it took seconds.
    prepare = tf.autograph.experimental.do_not_convert(prepare)
    images = singles.map(
        prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    batches = images.batch(batch_size, drop_remainder=drop_remainder)
    return untuned(batches.prefetch(2))


def _cut(image, size, window, max_pixels):
    import tensorflow as tf

    if image.dtype == tf.string:
        return decoding.cut_encoded(
            tf.io.read_file(image), size, window, max_pixels=max_pixels
        )
    return decoding.cut_array(image, size, window)


def _fraction(size, resize):
    return None if resize is None else size / resize


def _source(images):
    import tensorflow as tf

    if not hasattr(images, "shape"):
        return tf.constant([str(path) for path in images], "string")
    if len(images.shape) != 4 or np.dtype(images.dtype) != np.uint8:
        raise ValueError(
            "`images` must be file names or uint8 of shape (num_images, "
            f"height, width, channels). Received: {images.dtype} of shape "
            f"{tuple(images.shape)}."
        )
    with tf.device("CPU"):
        return tf.convert_to_tensor(images)


def _checked_labels(images, labels):
    import tensorflow as tf

    if len(images) != len(labels):
        raise ValueError(
            "`images` and `labels` must have the same length. Received: "
            f"{len(images)} and {len(labels)}."
        )
    return tf.constant(np.asarray(labels), "int64")


def _check_sizes(size, resize):
    check_count(size=size)
    if resize is not None and size > resize:
        raise ValueError(
            "`size` must be in [1, resize]: the crop is cut from an image "
            f"whose shorter side has `resize` pixels. Received: size={size}, "
            f"resize={resize}."
        )


def _checked_positions(positions, batch_size):
    every = np.arange(batch_size)
    found = every if positions is None else np.asarray(positions)
    if found.ndim != 1 or not len(found) or not np.isin(found, every).all():
        raise ValueError(
            "`positions` must be some integers in [0, batch), a batch of "
            f"{batch_size}. Received: positions={positions}."
        )
    return found


def _check_resize(resize, crop):
    if resize is None and crop == "side":
        raise ValueError(
            '`resize` must be given with crop="side", whose sides refer to '
            "it. Received: resize=None."
        )


def _batch_size(index_batches):
    shape = index_batches.element_spec.shape
    if shape.rank != 1 or shape[0] is None:
        raise ValueError(
            "`index_batches` must hold vectors of one known length. Received: "
            f"element_spec={index_batches.element_spec}. Batch with "
            "`drop_remainder=True`."
        )
    return shape[0]
