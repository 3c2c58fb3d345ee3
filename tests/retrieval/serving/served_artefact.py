"""Encoders and encoded images for tests of exports."""

import pathlib

import keras
import numpy as np
from PIL import Image

import keras_gsp as gsp


def write_files(folder):
    """Ten images of different sizes, JPEG and PNG, turned; their names."""
    rng, names = np.random.default_rng(0), []
    for i in range(10):
        colors = rng.integers(0, 255, (4, 5 + i % 3, 3))
        photo = np.kron(colors, np.ones((9, 9, 1))).astype("uint8")
        exif = Image.Exif()
        exif[0x0112] = i % 8 + 1
        names.append(str(folder / (f"{i}.png" if i % 2 else f"{i}.jpg")))
        Image.fromarray(photo).save(names[-1], exif=exif)
    return np.array(names)


def write_broken_files(folder, good):
    """Empty, random, truncated and damaged bytes; the names of the files."""
    jpeg, png = (pathlib.Path(path).read_bytes() for path in good[:2])
    flipped = bytearray(png)
    flipped[len(flipped) // 2] ^= 0xFF
    noise = np.random.default_rng(0).bytes(300)
    halves = jpeg[: len(jpeg) // 2], png[: len(png) // 2]
    names = []
    for i, content in enumerate([b"", noise, *halves, jpeg[:10], flipped]):
        names.append(str(folder / f"bad{i}"))
        pathlib.Path(names[-1]).write_bytes(content)
    return np.array(names)


def pixels_of(files, size=24, shorter_side=24):
    """Pixels of each file, as the evaluation pipeline prepares them."""
    cut = gsp.data.Preprocessing(size, shorter_side)
    batches = gsp.data.image_batches(list(files), preprocessing=cut)
    return np.concatenate(list(batches))


def small_encoder(side=24, preprocessing=None, **options):
    """An encoder with GSP, images to 6 numbers."""
    backbone = keras.Sequential(
        [
            keras.Input((side, side, 3)),
            keras.layers.Rescaling(1 / 127.5, -1.0),
            keras.layers.Conv2D(8, 5, strides=4, activation="tanh"),
        ]
    )
    pooling = gsp.layers.GeneralizedSumPooling(
        4, prototype_initializer="random_normal", **options
    )
    return gsp.models.build_encoder(
        backbone,
        embedding_size=6,
        pooling=pooling,
        preprocessing=preprocessing,
    )
