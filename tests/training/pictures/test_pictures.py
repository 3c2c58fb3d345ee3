"""Pictures: their files, sizes, colors and crops."""

import numpy as np
import pytest

from training.pictures.encoding import decoded_image, encoded_image
from training.pictures.palette import picture


def test_a_failed_drawing_writes_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with picture(tmp_path / "x.png"):
            raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_an_image_is_cut_to_its_embedded_square():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 12, 3), "uint8")
    contents = encoded_image(pixels, "PNG")
    np.testing.assert_array_equal(decoded_image(contents), pixels)
    square = decoded_image(contents, 0.5)
    np.testing.assert_array_equal(square, pixels[7:13, 3:9])
    assert (decoded_image(b"no image") == 200).all()
    small = decoded_image(encoded_image(pixels, side=10))
    assert small.shape == (10, 6, 3)
