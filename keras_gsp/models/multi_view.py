"""An encoder that sums the embeddings of several views of an image."""

import keras
from keras import ops

from keras_gsp._checks import check_interval
from keras_gsp._configured import Configured
from keras_gsp._encoding import input_of
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.models.two_looks import Crop, embed


class MultiView(Configured, keras.Model):
    """Embeds an image, its mirror image and other scales; sums them.

    The sum of the views' embeddings is l2-normalized. Nothing is trained. A
    mirrored letter is another letter: measure before you flip such images.

    The cost of an image is `passes` passes of the encoder: one a scale, twice
    that with `flip`; a pass at scale s costs about s squared.

    Args:
        encoder: model from images to embeddings, or to a dictionary with
            `"embedding"`. For scales other than 1 it must take images of any
            height and width.
        flip: whether to embed the mirror image (left to right), too. Default
            `True`.
        scales: factors of height and width, positive, at least one.
        name: name of the model.

    Input shape:
        (batch, height, width, channels), as the encoder's.

    Output shape:
        (batch, embedding_size), float32.

    Attributes:
        passes: passes of the encoder.

    Raises:
        ValueError: a scale that is not positive, no scale, an encoder of
            several inputs, or one of a fixed size with other scales than 1.

    Example:

    ```python
    encoder = keras.Sequential([
        keras.Input((None, None, 3)), gsp.layers.GeneralizedMeanPooling()
    ])
    views = gsp.models.MultiView(encoder, scales=(1.0, 0.7))
    assert views.passes == 4
    images = np.random.default_rng(0).random((2, 32, 32, 3))
    assert views(images).shape == (2, 3)
    ```
    """

    def __init__(
        self,
        encoder: keras.Model,
        *,
        flip: bool = True,
        scales: tuple[float, ...] = (1.0,),
        name: str = "multi_view",
    ) -> None:
        if not scales:
            raise ValueError("`scales` must not be empty. Received: scales=().")
        for scale in scales:
            check_interval("(0, inf)", scales=scale)
        shape = getattr(input_of(encoder), "shape", ())
        if len(shape) != 4:
            raise ValueError(
                "`encoder` must take images (batch, height, width, channels). "
                f"Received: inputs of shape {tuple(shape)}."
            )
        if shape[1:3] != (None, None) and {*scales} != {1.0}:
            raise ValueError(
                "`scales` other than 1 need an encoder for images of any size, "
                f"built on keras.Input((None, None, channels)). Received: "
                f"scales={tuple(scales)}, an encoder of {shape[1:3]} pixels."
            )
        images = keras.Input(shape[1:])
        views = [
            images if scale == 1.0 else Crop(float(scale))(images)
            for scale in scales
        ]
        if flip:
            views += [ops.flip(view, axis=2) for view in views]
        embeddings = [embed(encoder, view) for view in views]
        total = embeddings[0]
        if len(embeddings) > 1:
            total = keras.layers.Add(name="views")(embeddings)
        last = EmbeddingNormalization(dtype="float32", name="normalization")
        super().__init__(images, last(total), name=name)
        self.encoder = encoder
        self.flip = flip
        self.scales = tuple(scales)
        self.passes = len(views)
