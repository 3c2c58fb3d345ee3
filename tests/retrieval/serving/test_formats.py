"""What the reader reads, a SavedModel reads alike, or refuses by name."""

import io
import itertools
import struct

import keras
import numpy as np
import pytest
from PIL import Image, features

import keras_gsp as gsp
from keras_gsp.retrieval.serving.served_encoder import (
    OK,
    UNREADABLE,
    ServedEncoder,
)

tf = pytest.importorskip("tensorflow")
if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)


def picture(height, width):
    few = np.random.default_rng(height).integers(0, 256, (7, 9, 3), "uint8")
    smooth = Image.fromarray(few).resize((width, height), Image.BICUBIC)
    noise = np.random.default_rng(width).normal(0, 9, (height, width, 1))
    pixels = np.clip(np.asarray(smooth) + noise, 0, 255).astype("uint8")
    return Image.fromarray(pixels)


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif(orientation, order="<", form=3):
    """An Exif block whose one tag is an orientation, SHORT or LONG."""
    start = b"II*\0" if order == "<" else b"MM\0*"
    value = struct.pack(order + "HI"[form - 3], orientation).ljust(4, b"\0")
    head = struct.pack(order + "IHHHI", 8, 1, 0x0112, form, 1)
    return b"Exif\0\0" + start + head + value + b"\0" * 4


def files():
    image, tall = picture(120, 170), picture(211, 103)
    clear = image.convert("RGBA")
    clear.putalpha(picture(120, 170).convert("L"))
    deep = (np.asarray(image)[..., 0].astype("uint16") * 257).astype("uint16")
    yield "JPEG, 24 MP", encoded(picture(4000, 6000), "JPEG")
    for side in ((1, 1), (3, 70), (700, 903), (1237, 1999)):
        yield f"JPEG, {side}", encoded(picture(*side), "JPEG")
    for n, name in enumerate(("4:4:4", "4:2:2", "4:2:0")):
        yield name, encoded(image, "JPEG", subsampling=n)
    large = picture(1500, 2000)
    yield "progressive", encoded(large, "JPEG", progressive=True)
    yield "gray", encoded(large.convert("L"), "JPEG")
    yield "CMYK", encoded(large.convert("CMYK"), "JPEG")
    for turn, form in itertools.product(range(1, 9), (3, 4)):
        block = exif(turn, "<>"[turn % 2], form)
        yield f"turned {turn}, type {form}", encoded(tall, "JPEG", exif=block)
    yield "PNG", encoded(image, "PNG")
    yield "PNG, turned", encoded(tall, "PNG", exif=exif(6)[6:])
    yield "PNG, clear", encoded(clear, "PNG")
    yield "PNG, gray and clear", encoded(clear.convert("LA"), "PNG")
    yield (
        "PNG, one clear color",
        encoded(image.quantize(4), "PNG", transparency=2),
    )
    for bits, colors in ((1, 2), (2, 4), (4, 16), (8, 200)):
        yield f"PNG, {bits} bits", encoded(image.quantize(colors), "PNG")
    yield "PNG, black and white", encoded(image.convert("1"), "PNG")
    yield "PNG, 16 bits", encoded(Image.fromarray(deep), "PNG")
    yield "BMP", encoded(image, "BMP")
    yield "WebP", encoded(image, "WEBP")
    yield "WebP, clear", encoded(clear, "WEBP", lossless=True)
    yield "WebP, turned", encoded(tall, "WEBP", exif=exif(8))


def only_here():
    image = picture(60, 80)
    yield "BMP with a palette", encoded(image.convert("P"), "BMP")
    yield "BMP of 1 bit", encoded(image.convert("1"), "BMP")
    if features.check("avif"):
        yield "AVIF", encoded(image, "AVIF")


def served(cut):
    keras.utils.set_random_seed(0)
    size = cut.image_size
    backbone = keras.Sequential(
        [keras.Input((size, size, 3)), keras.layers.Conv2D(16, 5, strides=4)]
    )
    encoder = gsp.models.build_encoder(
        backbone, embedding_size=8, preprocessing=cut
    )
    return ServedEncoder(encoder)


@pytest.mark.parametrize(
    "cut",
    [
        gsp.data.Preprocessing(64, 80),
        pytest.param(gsp.data.Preprocessing(96), marks=pytest.mark.slow),
    ],
)
def test_a_served_file_has_the_pixels_that_the_reader_gives(cut):
    names, contents = zip(*files(), strict=True)
    assert len(names) >= 40
    encoder = served(cut)
    pixels, status = encoder.decoded(tf.constant(contents))
    assert {*status.numpy()} == {OK.encode()}
    for name, content, theirs in zip(names, contents, pixels, strict=True):
        ours = cut.decode(content).astype(int)
        difference = np.abs(ours - theirs.numpy())
        # Both round between columns and rows; the sums differ in the last bit.
        assert difference.max() <= 1 and difference.mean() <= 0.1, name
    ours, _ = encoder.embed(contents)
    theirs, _ = encoder.embedded_bytes(tf.constant(contents))
    assert np.linalg.norm(ours - theirs.numpy(), axis=1).max() < 0.01


def test_a_format_that_one_side_reads_is_refused_by_name_on_the_other():
    cut = gsp.data.Preprocessing(32)
    _, contents = zip(*only_here(), strict=True)
    for content in contents:
        assert cut.decode(content).shape == (32, 32, 3)
    _, status = served(cut).decoded(tf.constant(contents))
    assert {*status.numpy()} == {UNREADABLE.encode()}
    assert "24-bit BMP" in UNREADABLE
