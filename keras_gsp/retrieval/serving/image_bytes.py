"""From encoded images to pixels in a served graph, one bad file at a time."""

OK = "ok"
UNREADABLE = "unreadable: not a whole JPEG, PNG, GIF or BMP image"


def decoded_images(contents, height, width, channels, crop_fraction):
    """Decodes encoded images; one that cannot be read does not stop others.

    The decoders of TensorFlow raise, and a raised error ends the whole batch.
    Inside a tf.data pipeline an element that raises can be dropped instead:
    that is done here, and the places of dropped ones are filled with black.

    Args:
        contents: (batch,), strings of bytes.
        height: height of the result, pixels.
        width: width of the result, pixels.
        channels: 1 or 3.
        crop_fraction: side of the centred square that is kept, as a fraction
            of the image's shorter side, in (0, 1].

    Returns:
        Images (batch, height, width, channels), uint8, and status (batch,),
        strings: `"ok"` or what is wrong.
    """
    import tensorflow as tf

    def decode(position, content):
        image = tf.io.decode_image(
            content, channels=channels, expand_animations=False
        )
        image = tf.ensure_shape(image, (None, None, channels))
        return position, centre_square(image, height, width, crop_fraction)

    with tf.device("/CPU:0"):
        count = tf.size(contents, out_type="int64")
        elements = tf.data.Dataset.from_tensor_slices(
            (tf.range(count), contents)
        )
        decoded = elements.map(
            decode, num_parallel_calls=tf.data.AUTOTUNE
        ).ignore_errors(log_warning=False)
        # An image of its own keeps the pipeline from ending up empty.
        nothing = tf.zeros((1, height, width, channels), "uint8")
        last = tf.data.Dataset.from_tensor_slices((count[None], nothing))
        positions, images = (
            decoded.concatenate(last).batch(count + 1).get_single_element()
        )
        images = tf.scatter_nd(
            positions[:, None],
            images,
            tf.stack([count + 1, height, width, channels]),
        )[:-1]
        is_read = tf.scatter_nd(
            positions[:, None], tf.ones_like(positions), [count + 1]
        )[:-1]
        status = tf.where(is_read > 0, OK, UNREADABLE)
    return tf.ensure_shape(images, (None, height, width, channels)), status


def centre_square(image, height, width, crop_fraction):
    """Keeps the centred square of an image and resizes it.

    As `gsp.data.evaluation_batches` prepares images that are scored.

    Args:
        image: (height, width, channels), uint8.
        height: height of the result, pixels.
        width: width of the result, pixels.
        crop_fraction: as for `decoded_images`.

    Returns:
        (height, width, channels), uint8.
    """
    import tensorflow as tf

    shape = tf.shape(image)
    shorter = tf.cast(tf.minimum(shape[0], shape[1]), "float32")
    side = tf.maximum(tf.cast(tf.round(shorter * crop_fraction), "int32"), 1)
    top, left = (shape[0] - side) // 2, (shape[1] - side) // 2
    square = image[top : top + side, left : left + side]
    resized = tf.image.resize(square, (height, width))
    return tf.saturate_cast(tf.round(resized), "uint8")
