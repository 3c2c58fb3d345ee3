"""From encoded bytes or an array in memory to a resized window of pixels."""


def cut_encoded(contents, size, window):
    """Decodes a window of an encoded image and resizes it to a square.

    A JPEG is decoded inside the window only. Grey, palette, CMYK and
    transparent files come out as three channels (transparency is dropped),
    of an animation the first frame; EXIF orientation is ignored.

    Args:
        contents: Bytes of a JPEG, PNG, GIF, BMP or WebP file, string scalar.
        size: Side of the result in pixels.
        window: Function of the image's height and width to the window
            (top, left, height, width), all in pixels.

    Returns:
        (size, size, 3), uint8.
    """
    import tensorflow as tf

    pixels = tf.cond(
        tf.image.is_jpeg(contents),
        lambda: _jpeg_window(contents, window),
        lambda: _any_window(contents, window),
    )
    return resized(pixels, size)


def cut_array(image, size, window):
    """Cuts a window out of pixels in memory and resizes it to a square.

    Args:
        image: (height, width, channels), uint8; 1 or 3 channels.
        size: Side of the result in pixels.
        window: As for `cut_encoded`.

    Returns:
        (size, size, channels), uint8.
    """
    import tensorflow as tf

    height, width = tf.shape(image)[0], tf.shape(image)[1]
    pixels = _slice(image, window(height, width))
    return resized(tf.ensure_shape(pixels, [None, None, image.shape[2]]), size)


def resized(pixels, size):
    """Bilinear resize to (size, size), rounded back to uint8.

    Without anti-aliasing, as in the papers' TensorFlow code: it would take
    ten times as long, more than decoding.
    """
    import tensorflow as tf

    result = tf.image.resize(pixels, (size, size))
    return tf.saturate_cast(tf.round(result), "uint8")


def _jpeg_window(contents, window):
    import tensorflow as tf

    shape = tf.io.extract_jpeg_shape(contents)
    return tf.image.decode_and_crop_jpeg(
        contents, window(shape[0], shape[1]), channels=3
    )


def _any_window(contents, window):
    import tensorflow as tf

    image = tf.io.decode_image(contents, channels=3, expand_animations=False)
    image = tf.ensure_shape(image, [None, None, 3])
    return _slice(image, window(tf.shape(image)[0], tf.shape(image)[1]))


def _slice(image, window):
    top, left, height, width = (window[i] for i in range(4))
    return image[top : top + height, left : left + width]
