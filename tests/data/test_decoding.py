"""Images the right way up, and none that is too large to decode."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

import keras_gsp as gsp

ORIENTATION = 0x0112


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


def giant(kind):
    """A file of a few bytes whose header says 30,000 x 30,000 pixels."""
    contents = bytearray(encoded(blocks(), kind))
    size = (30_000).to_bytes(4, "big")
    if kind == "PNG":
        contents[16:24] = size + size
        contents[29:33] = zlib.crc32(contents[12:29]).to_bytes(4, "big")
    elif kind == "BMP":
        contents[18:26] = size[::-1] + size[::-1]
    else:
        at = contents.index(b"\xff\xc0") + 5
        contents[at : at + 4] = size[2:] + size[2:]
    return bytes(contents)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_come_out_the_right_way_up(kind, orientation):
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}
    contents = encoded(blocks(), kind, orientation, **options.get(kind, {}))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
    expected = np.asarray(upright.convert("RGB")).astype(int)
    assert gsp.data.image_size(contents) == expected.shape[:2]
    found = gsp.data.decode_image(contents)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_of_both_byte_orders_and_of_long_values_is_read(kind):
    for order, start in (("<", b"II*\0"), (">", b"MM\0*")):
        for form, value in ((3, "HH"), (4, "I")):
            # The directory begins at 8: a width, then orientation 6.
            directory = struct.pack(
                f"{order}IHHHIIHHI{value}",
                *(8, 2, 0x0100, 3, 1, 3),
                *(ORIENTATION, form, 1, *(6, 0)[: len(value)]),
            )
            exif = b"Exif\0\0" + start + directory + b"\0" * 4
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
    for shorter_side in (12, None):
        cut = gsp.data.Preprocessing(12, shorter_side)
        images = gsp.data.image_batches(files, preprocessing=cut)[0]
        # Pillow rounds between rows and columns.
        difference = images.astype(int) - images[0]
        assert np.abs(difference).max() <= 1


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_an_orientation_that_makes_no_sense_is_ignored():
    for value in (0, 9, 500):
        contents = encoded(blocks(), "JPEG", value)
        assert gsp.data.image_size(contents) == (20, 40)
    damaged = bytearray(encoded(blocks(), "JPEG", 6))
    at = damaged.index(b"Exif\0\0") + 10
    damaged[at : at + 4] = b"\xff" * 4  # a directory far behind the file
    assert gsp.data.image_size(bytes(damaged)) == (20, 40)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "JPEG"])
def test_a_large_image_is_refused_by_its_header(kind, tmp_path):
    contents = giant(kind)
    path = tmp_path / "bomb"
    path.write_bytes(contents)
    cut = gsp.data.Preprocessing(8)
    for read in (
        lambda: gsp.data.decode_image(contents),
        lambda: gsp.data.ImageSet([0], "a", paths=[path]).readable(),
        lambda: gsp.data.image_batches([path], preprocessing=cut)[0],
    ):
        with pytest.raises(ValueError, match="must have at most max_pixels"):
            read()


def test_the_limit_is_an_argument():
    contents = encoded(blocks(), "PNG")
    assert gsp.data.decode_image(contents, max_pixels=800).shape[0] == 20
    with pytest.raises(ValueError, match="max_pixels=799.*40 x 20"):
        gsp.data.decode_image(contents, max_pixels=799)


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
        cut = gsp.data.Preprocessing((12, 15), channels=channels)
        mode = "RGB" if channels == 3 else "L"
        gray = np.asarray(one.convert("RGB").convert(mode)).reshape(12, 15, -1)
        read = cut.decode(contents).astype(int)
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
            found.shape[:2], channels=channels, background=background
        )
        read = cut.decode(contents).astype(int)
        shown = expected.convert("RGB" if channels == 3 else "L")
        shown = np.asarray(shown).reshape(read.shape)
        assert np.abs(read - shown).max() <= 1, name


def test_a_photograph_of_a_phone_is_read_by_an_extra_that_its_error_names(
    monkeypatch,
):
    pillow_heif = pytest.importorskip("pillow_heif")
    smooth = blocks().resize((160, 80), Image.BICUBIC)
    file = io.BytesIO()
    pillow_heif.from_pillow(smooth).save(file, quality=95)
    contents = file.getvalue()
    found = gsp.data.decode_image(contents).astype(int)
    assert np.abs(found - np.asarray(smooth)).mean() < 4
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ValueError, match=r"keras-gsp\[heif\]"):
        gsp.data.decode_image(contents)


def test_an_animated_webp_is_refused():
    contents = encoded(
        blocks(), "WEBP", save_all=True, append_images=[blocks().rotate(180)]
    )
    with pytest.raises(ValueError, match="whole image"):
        gsp.data.decode_image(contents)


@pytest.mark.parametrize(
    "contents",
    [b"", b"hello", b"GIF89a", b"BM", b"\xff\xd8\xff", b"RIFF0000WEBP"],
)
def test_what_is_no_image_is_named(contents):
    with pytest.raises(ValueError, match="`contents` must"):
        gsp.data.image_size(contents)
    with pytest.raises(ValueError, match="JPEG, PNG, BMP, WebP.*GIF8"):
        gsp.data.decode_image(encoded(blocks(), "GIF"))
