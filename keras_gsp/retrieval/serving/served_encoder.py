"""An encoder inside a TensorFlow graph: bytes or pixels to embeddings."""

from typing import Any

import keras

from keras_gsp.data.image_header import MAX_PIXELS
from keras_gsp.embeddings.encoding import embedding_of
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.serving.image_bytes import decoded_images


class ServedEncoder:
    """What every served signature begins with.

    Args:
        encoder: built Keras model of one image input.
        image_size: side of the images the encoder takes, pixels, or (height,
            width). Default `None`: as the encoder's input says.
        crop_fraction: side of the centred square that is kept of an encoded
            image, as a fraction of its shorter side, in (0, 1]; `None` keeps
            the whole image.
        max_pixels: pixels above which an encoded image is refused.

    Raises:
        RuntimeError: another backend than TensorFlow.
        ValueError: an encoder without one image input, an image size that is
            unknown or not the encoder's, a fraction outside (0, 1].
    """

    def __init__(
        self,
        encoder: keras.Model,
        image_size: int | tuple[int, int] | None = None,
        crop_fraction: float | None = 1.0,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "Exports need the TensorFlow backend. Received: "
                f"{keras.backend.backend()!r}. Save the encoder as .keras and "
                "export it in a process with KERAS_BACKEND=tensorflow."
            )
        check_crop_fraction(crop_fraction)
        check_count(max_pixels=max_pixels)
        self.encoder = encoder
        self.crop_fraction = crop_fraction and float(crop_fraction)
        self.max_pixels = int(max_pixels)
        self._decode: Any = None
        self.height, self.width, self.channels = image_shape_of(
            encoder, image_size
        )
        self.embedding_size = embedding_of(
            encoder.compute_output_spec(encoder.inputs[0])
        ).shape[-1]

    @property
    def variables(self) -> list[Any]:
        """The encoder's weights as TensorFlow variables, for tracking."""
        return [variable.value for variable in self.encoder.variables]

    def decoded(self, image_bytes: Any) -> tuple[Any, Any]:
        """Flattens and decodes encoded images.

        Args:
            image_bytes: strings of bytes, any shape.

        Returns:
            Images (batch, height, width, channels), uint8, and status
            (batch,), `"ok"` or what is wrong.
        """
        import tensorflow as tf

        if self._decode is None:
            # Traced once, called by every signature.
            self._decode = tf.function(
                lambda contents: decoded_images(
                    contents,
                    self.height,
                    self.width,
                    self.channels,
                    self.crop_fraction,
                    self.max_pixels,
                ),
                input_signature=[tf.TensorSpec([None], "string")],
                autograph=False,
            )
        return self._decode(tf.reshape(image_bytes, [-1]))

    def embedded(self, images: Any) -> Any:
        """Embeds pixels of the encoder's size.

        Args:
            images: (..., height, width, channels), in [0, 255] as the
                encoder was trained on; any number of leading axes.

        Returns:
            (batch, embedding_size), float32, leading axes flattened.
        """
        import tensorflow as tf

        size = (self.height, self.width, self.channels)
        tf.debugging.assert_equal(
            tf.shape(images)[-3:],
            tf.constant(size),
            f"`images` must have the encoder's size {size}.",
        )
        images = tf.cast(images, self.encoder.inputs[0].dtype)
        flat = tf.reshape(images, (-1, *size))
        outputs = embedding_of(self.encoder(flat, training=False))
        return tf.cast(outputs, "float32")


def like_leading(values: Any, inputs: Any, num_own: int = 0) -> Any:
    """Gives the answers of a flat batch the leading shape of the question.

    A single image gets a single answer, a batch gets a batch.

    Args:
        values: (batch, ...).
        inputs: what was asked, any shape.
        num_own: axes at its end that belong to one item. Default 0.

    Returns:
        (leading axes, ...).
    """
    import tensorflow as tf

    shape = tf.shape(inputs)
    leading = shape[: tf.size(shape) - num_own]
    return tf.reshape(values, tf.concat([leading, tf.shape(values)[1:]], 0))


def check_crop_fraction(crop_fraction: float | None) -> None:
    """Raises `ValueError` unless it is `None` or in (0, 1]."""
    if crop_fraction is not None and not 0.0 < crop_fraction <= 1.0:
        raise ValueError(
            "`crop_fraction` must be in (0, 1], or None. "
            f"Received: crop_fraction={crop_fraction}."
        )


def image_shape_of(
    encoder: keras.Model, image_size: int | tuple[int, int] | None = None
) -> tuple[int, int, int]:
    """Height, width and channels of the images that an encoder takes.

    Args:
        encoder: built Keras model of one image input.
        image_size: side in pixels or (height, width); `None`: as the
            encoder's input says.

    Raises:
        ValueError: an encoder without one image input, or a size that is
            unknown or not the encoder's.
    """
    shapes = [tuple(tensor.shape) for tensor in encoder.inputs or []]
    if len(shapes) != 1 or len(shapes[0]) != 4 or shapes[0][3] is None:
        raise ValueError(
            "`encoder` must have one input (batch, height, width, channels). "
            f"Received: inputs of shape {shapes}."
        )
    _, *own, channels = shapes[0]
    sizes: tuple[Any, ...]
    if image_size is None:
        sizes = tuple(own)
    elif isinstance(image_size, int):
        sizes = (image_size, image_size)
    else:
        sizes = tuple(image_size)
    fits = all(
        mine in (None, theirs) for mine, theirs in zip(own, sizes, strict=True)
    )
    if None in sizes or not fits:
        raise ValueError(
            "`image_size` must be given where the encoder leaves it open, and "
            f"equal to it otherwise. Received: image_size={sizes}, the "
            f"encoder takes {tuple(own)}."
        )
    return (*sizes, channels)
