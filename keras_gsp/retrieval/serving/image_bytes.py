"""From encoded images to pixels in a served graph, one bad file at a time."""

from typing import Any

from keras_gsp.data.crops import evaluation_window
from keras_gsp.data.decoding import cut_encoded, num_pixels
from keras_gsp.data.image_header import MAX_PIXELS

OK = "ok"
UNREADABLE = "unreadable: not a whole JPEG, PNG, GIF, BMP or WebP image"


def decoded_images(
    contents: Any,
    height: int,
    width: int,
    channels: int,
    crop_fraction: float | None,
    max_pixels: int = MAX_PIXELS,
) -> tuple[Any, Any]:
    """Decodes encoded images; one that cannot be read does not stop others.

    Each is prepared as `gsp.data.evaluation_batches` prepares images that are
    scored, by the same function.

    The decoders of TensorFlow raise, and a raised error ends the whole batch.
    Inside a tf.data pipeline an element that raises can be dropped instead:
    that is done here, and the places of dropped ones are filled with black.

    Args:
        contents: (batch,), strings of bytes.
        height: height of the result, pixels.
        width: width of the result, pixels.
        channels: 1 or 3.
        crop_fraction: side of the centred square that is kept, as a fraction
            of the image's shorter side, in (0, 1]; `None` keeps the whole
            image.
        max_pixels: pixels above which an image is refused before it is
            decoded.

    Returns:
        Images (batch, height, width, channels), uint8, and status (batch,),
        strings: `"ok"` or what is wrong.
    """
    import tensorflow as tf

    window = evaluation_window(crop_fraction)

    def decode(content):
        return cut_encoded(
            content,
            (height, width),
            window,
            channels=channels,
            max_pixels=max_pixels,
        )

    with tf.device("/CPU:0"):
        nothing = tf.zeros((height, width, channels), "uint8")
        images, is_read = _each(contents, decode, nothing)
        status = tf.where(is_read, OK, UNREADABLE)
        # Header by header, and only where something could not be read.
        status = tf.cond(
            tf.reduce_all(is_read),
            lambda: status,
            lambda: _too_large(contents, status, max_pixels),
        )
    return tf.ensure_shape(images, (None, height, width, channels)), status


def _too_large(contents, status, max_pixels):
    """Says which of the images were refused for their size."""
    import tensorflow as tf

    pixels, is_read = _each(contents, num_pixels, tf.zeros([], "int64"))
    said = tf.strings.join(
        [
            "too large: ",
            tf.strings.as_string(pixels),
            f" pixels, the limit is {max_pixels}",
        ]
    )
    return tf.where(is_read & (pixels > max_pixels), said, status)


def _each(contents, function, nothing):
    """Maps each string; one that raises gets `nothing`, and `False`."""
    import tensorflow as tf

    count = tf.size(contents, out_type="int64")
    elements = tf.data.Dataset.from_tensor_slices((tf.range(count), contents))
    mapped = elements.map(
        lambda position, content: (position, function(content)),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).ignore_errors(log_warning=False)
    # An element of its own keeps the pipeline from ending up empty.
    last = tf.data.Dataset.from_tensors((count, nothing))
    positions, values = (
        mapped.concatenate(last).batch(count + 1).get_single_element()
    )
    places = positions[:, None]
    shape = tf.concat([[count + 1], tf.shape(values, "int64")[1:]], axis=0)
    values = tf.scatter_nd(places, values, shape)[:-1]
    ones = tf.ones_like(positions)
    return values, tf.scatter_nd(places, ones, [count + 1])[:-1] > 0
