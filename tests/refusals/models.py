"""What models refuse."""

import functools

import keras
import numpy as np

from keras_gsp import layers, models
from tests.refusals._rows import out_of_range


def encoder(side=16, layer=None, pooling=None, size=6, **options):
    """A convolution, pooled."""
    backbone = keras.Sequential(
        [
            keras.Input((side, side, 3)),
            layer or keras.layers.Conv2D(8, 2, strides=2),
        ]
    )
    pooling = pooling or layers.GeneralizedSumPooling(4, transport_ratio=0.1)
    return models.build_encoder(
        backbone, embedding_size=size, pooling=pooling, **options
    )


def gray():
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])


def tokens():
    layer = keras.layers.Reshape((-1, 3))
    return encoder(layer=layer, prefix_tokens=1, prefix="keep")


def two_looks(first=encoder, second=None, **options):
    return models.TwoLooks(first(), second and second(), **options)


def look(images):
    return models.TwoLooks(encoder(side=16)).boxes(images)


def multi_view(make=encoder, **options):
    return models.MultiView(make(), **options)


of_any_size = functools.partial(encoder, side=None)
average = functools.partial(
    encoder, pooling=keras.layers.GlobalAveragePooling2D()
)
ROWS = [
    *out_of_range(
        two_looks, {"combine": ["both"], "mass": [0.0], "window": [1.5]}
    ),
    (two_looks, (average,), "`pooling_weights`.*Received: 0 in the"),
    (two_looks, (tokens,), "feature map"),
    (two_looks, (of_any_size,), "`first` must take images of a known size"),
    (two_looks, (encoder, of_any_size), "`second` must take"),
    (two_looks, (encoder, lambda: encoder(size=5)), r"\[6, 5\]"),
    (two_looks, (encoder, gray), "channels. Received: 3 and 1"),
    *(
        (look, (images,), "`images` must be an array")
        for images in (np.ones((16, 16, 3)), np.ones((0, 9, 9, 3)), ["a.jpg"])
    ),
    *out_of_range(multi_view, {"scales": [()]}),
    (multi_view, {"scales": (0.0,)}, "`scales` must be .*Received: scales=0.0"),
    (multi_view, {"scales": (1.0, 0.5)}, "images of any size.*16, 16"),
]
