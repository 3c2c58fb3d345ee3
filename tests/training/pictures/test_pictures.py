"""Pictures: their files, sizes, colors and crops."""

import numpy as np
import pytest
from PIL import Image

from training.pictures.encoding import decoded_image, encoded_image
from training.pictures.palette import METHODS, picture
from training.reports.demo_outputs import (
    draw_learning_curves,
    draw_pooling_weights,
    draw_retrieval_grid,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 12, 12, 3), "uint8")


def history(length):
    return [
        {"step": 10 * i, "val_map_at_r": 0.1 * i} for i in range(1, length + 1)
    ]


def test_every_method_has_its_own_color():
    assert len(set(METHODS.values())) == len(METHODS)


def test_learning_curves_take_runs_of_different_lengths(tmp_path):
    file = tmp_path / "new" / "curves.png"
    draw_learning_curves(file, {"GAP": [history(3), history(5)], "GSP": [[]]})
    assert Image.open(file).size == (1320, 600)


def test_pooling_weights_may_be_coarser_than_the_image(tmp_path):
    file = tmp_path / "weights.png"
    weights = np.full((6, 3, 3), 1 / 9)
    draw_pooling_weights(file, IMAGES, weights, list("abcdef"))
    assert Image.open(file).size[0] > Image.open(file).size[1]


def test_a_retrieval_grid_frames_right_and_wrong_in_two_colors(tmp_path):
    file = tmp_path / "grid.png"
    draw_retrieval_grid(
        file, IMAGES[:2], IMAGES[2:].reshape(2, 2, 12, 12, 3), np.eye(2) > 0
    )
    pixels = np.asarray(Image.open(file).convert("RGB")).reshape(-1, 3)
    for color in (METHODS["GSP"], METHODS["GSP+ZSR"]):
        channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == channels).all(axis=1).sum() > 100


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
