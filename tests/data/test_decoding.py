"""Images the right way up, and none that is too large to decode."""

import io
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


def test_transparent_pixels_show_the_background():
    clear = Image.new("RGBA", (4, 3), (200, 10, 10, 0))
    contents = encoded(clear, "PNG")
    found = gsp.data.decode_image(contents, background=(0, 90, 200))
    assert (found == (0, 90, 200)).all()
    assert (gsp.data.decode_image(contents) == 255).all()


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
