"""Images the right way up, and none that is too large to decode."""

import functools
import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

import keras_gsp as gsp
from keras_gsp.data import crops, decoding

ORIENTATION = 0x0112
# Crops of a JPEG differ at their edges: nothing is decoded beside them.
JPEG_TOLERANCE = 8.0


def blocks():
    """Eight colored blocks, 20 pixels high and 40 wide."""
    colors = np.random.default_rng(0).integers(0, 255, (2, 4, 3))
    pixels = np.kron(colors, np.ones((10, 10, 1))).astype("uint8")
    return Image.fromarray(pixels)


def encoded(image, kind, orientation=None, **options):
    file = io.BytesIO()
    if orientation is not None:
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        options["exif"] = exif
    image.save(file, kind, **options)
    return file.getvalue()


def giants():
    """The first bytes of a large file of each format."""
    size = np.array([30_000], "<u4").tobytes()
    big = size[::-1]
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + big + big + b"\x08\2\0\0\0"
    webp = b"VP8X\n\0\0\0\0\0\0\0" + size[:3] + size[:3]
    jpeg = encoded(blocks(), "JPEG")
    at = jpeg.index(b"\xff\xc0") + 5
    return {
        "PNG": png + zlib.crc32(png[12:]).to_bytes(4, "big"),
        "WebP": b"RIFF" + size + b"WEBP" + webp + b"\0" * 20,
        "BMP": b"BM" + b"\0" * 12 + b"\x28\0\0\0" + size + size + b"\0" * 40,
        "JPEG": jpeg[:at] + size[1::-1] * 2 + jpeg[at + 4 :],
    }


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_come_out_the_right_way_up(kind, orientation):
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}
    contents = encoded(blocks(), kind, orientation, **options.get(kind, {}))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
    expected = np.asarray(upright.convert("RGB")).astype(int)
    assert gsp.data.image_size(contents) == expected.shape[:2]
    found = gsp.data.decode_image(contents)
    tolerance = JPEG_TOLERANCE if kind == "JPEG" else 0.0
    assert np.abs(found - expected).mean() <= tolerance


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_both_byte_orders_of_exif_are_read(kind):
    for order, start in (("<", b"II*\0"), (">", b"MM\0*")):
        # The directory begins at 8: a width, then orientation 6.
        directory = struct.pack(
            f"{order}IHHHIIHHIHHI",
            *(8, 2, 0x0100, 3, 1, 3),
            *(ORIENTATION, 3, 1, 6, 0, 0),
        )
        exif = b"Exif\0\0" + start + directory
        contents = encoded(blocks(), kind, exif=exif)
        assert gsp.data.image_size(contents) == (40, 20)


def test_windows_refer_to_what_is_seen(tmp_path):
    """One photograph in eight orientations is one photograph."""
    turned = {6: 90, 3: 180, 8: 270, 1: 0}
    upright = blocks()
    for orientation, angle in turned.items():
        # A camera held so stores the scene turned the other way.
        stored = upright.rotate(angle, expand=True)
        contents = encoded(stored, "PNG", orientation)
        (tmp_path / f"{orientation}.png").write_bytes(contents)
    files = sorted(map(str, tmp_path.iterdir()))
    for resize in (12, None):
        batches = gsp.data.evaluation_batches(files, size=12, resize=resize)
        (images,) = batches.as_numpy_iterator()
        assert (images == images[0]).all()

    def cut(file):
        window = functools.partial(crops.random_window, seed=[1, 2])
        return decoding.cut_encoded(tf.io.read_file(file), (12, 12), window)

    # Training crops too.
    found = list(tf.data.Dataset.from_tensor_slices(files).map(cut))
    assert all((image == found[0]).numpy().all() for image in found)


def test_an_orientation_that_makes_no_sense_is_ignored():
    for value in (0, 9, 500):
        contents = encoded(blocks(), "JPEG", value)
        assert gsp.data.image_size(contents) == (20, 40)
    damaged = bytearray(encoded(blocks(), "JPEG", 6))
    at = damaged.index(b"Exif\0\0") + 10
    damaged[at : at + 4] = b"\xff" * 4  # a directory far behind the file
    assert gsp.data.image_size(bytes(damaged)) == (20, 40)


@pytest.mark.parametrize("kind", ["PNG", "WebP", "BMP", "JPEG"])
def test_a_large_image_is_refused_by_its_header(kind, tmp_path):
    contents = giants()[kind]
    large = gsp.data.image_size(contents)
    assert min(large) >= 30_000
    with pytest.raises(ValueError, match="max_pixels=50000000"):
        gsp.data.decode_image(contents)
    path = tmp_path / "bomb"
    path.write_bytes(contents)
    with pytest.raises(ValueError, match="max_pixels=50000000"):
        gsp.data.readable_images([path])
    batches = gsp.data.evaluation_batches([str(path)], size=8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_pixels"):
        next(iter(batches))


def test_the_limit_is_an_argument():
    contents = encoded(blocks(), "PNG")
    assert gsp.data.decode_image(contents, max_pixels=800).shape[0] == 20
    with pytest.raises(ValueError, match="max_pixels=799.*40 x 20"):
        gsp.data.decode_image(contents, max_pixels=799)
    with pytest.raises(ValueError, match="max_pixels=0"):
        gsp.data.evaluation_batches(["a.png"], size=8, max_pixels=0)


def clear_pictures():
    """Files with hidden colors, and what an eye sees on white."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 30, 4), "uint8")
    pixels[:8, :, 3], pixels[8:16, :, 3] = 0, 255
    clear = Image.fromarray(pixels)
    color, gray = clear.convert("RGB"), clear.convert("L")
    palette = gray.convert("P")
    hidden = tuple(pixels[0, 0, :3].tolist())
    yield "PNG", encoded(clear, "PNG")
    yield "gray and alpha", encoded(clear.convert("LA"), "PNG")
    yield "a palette", encoded(palette, "PNG", transparency=7)
    yield "one clear color", encoded(color, "PNG", transparency=hidden)
    yield "turned", encoded(clear, "PNG", orientation=6)
    yield (
        "animated",
        encoded(clear, "PNG", save_all=True, append_images=[clear.rotate(180)]),
    )
    yield "lossless WebP", encoded(clear, "WEBP", lossless=True, exact=True)
    yield "WebP", encoded(clear, "WEBP")
    yield "opaque lossless WebP", encoded(color, "WEBP", lossless=True)
    yield "opaque WebP", encoded(color, "WEBP")
    yield "opaque gray", encoded(gray, "PNG")


@pytest.mark.parametrize("channels", [1, 3])
def test_few_bits_a_pixel_hide_nothing(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 15, 3), "uint8")
    picture = Image.fromarray(pixels)
    few = [picture.quantize(count) for count in (2, 4, 16)]
    for one in (*few, picture.convert("1")):
        contents = encoded(one, "PNG")
        shown = np.asarray(one.convert("RGB"))
        np.testing.assert_array_equal(gsp.data.decode_image(contents), shown)
        cut = gsp.data.Preprocessing((12, 15), None, channels=channels)
        mode = "RGB" if channels == 3 else "L"
        gray = np.asarray(one.convert("RGB").convert(mode)).reshape(12, 15, -1)
        read = cut.decode(contents).numpy().astype(int)
        assert np.abs(read - gray).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("background", "channels"), [((255, 255, 255), 1), ((10, 200, 30), 3)]
)
def test_hidden_colors_of_transparent_pictures_decide_nothing(
    background, channels
):
    for name, contents in clear_pictures():
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
        picture = picture.convert("RGBA")
        behind = Image.new("RGBA", picture.size, (*background, 255))
        expected = Image.alpha_composite(behind, picture).convert("RGB")
        found = gsp.data.decode_image(contents, background=background)
        difference = np.abs(found - np.asarray(expected).astype(int))
        assert difference.max() <= 1, name
        cut = gsp.data.Preprocessing(
            found.shape[:2], None, channels=channels, background=background
        )
        read = cut.decode(contents).numpy().astype(int)
        shown = expected.convert("RGB" if channels == 3 else "L")
        shown = np.asarray(shown).reshape(read.shape)
        assert np.abs(read - shown).max() <= 1, name


def test_an_animated_webp_is_refused():
    # TensorFlow's decoder writes outside its memory with other channels.
    contents = encoded(
        blocks(), "WEBP", save_all=True, append_images=[blocks().rotate(180)]
    )
    # One that does not say so is refused too.
    quiet = contents[:20] + bytes([contents[20] & ~2]) + contents[21:]
    for one in (contents, quiet):
        with pytest.raises(ValueError, match="whole image"):
            gsp.data.decode_image(one)


@pytest.mark.parametrize(
    "contents",
    [b"", b"hello", b"GIF89a", b"BM", b"\xff\xd8\xff", b"RIFF0000WEBP"],
)
def test_what_is_no_image_is_named(contents):
    with pytest.raises(ValueError, match="`contents` must"):
        gsp.data.image_size(contents)
    with pytest.raises(ValueError, match="JPEG, PNG, BMP or WebP.*GIF8"):
        gsp.data.decode_image(encoded(blocks(), "GIF"))
