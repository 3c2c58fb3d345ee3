"""Unusable files are found before training, all of them at once."""

import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp


@pytest.fixture
def paths(tmp_path):
    image = Image.fromarray(np.full((40, 50, 3), 90, "uint8"))
    image.save(tmp_path / "good.jpg")
    image.save(tmp_path / "good.png")
    whole = (tmp_path / "good.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) - 60])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.png").write_text("not an image")
    names = ["good.jpg", "cut.jpg", "good.png", "empty.jpg", "text.png"]
    return [tmp_path / name for name in [*names, "missing.jpg"]]


def test_one_error_names_every_unusable_file(paths):
    with pytest.raises(ValueError) as error:
        gsp.data.readable_images(paths)
    for name in ("cut.jpg", "empty.jpg", "text.png", "missing.jpg"):
        assert name in str(error.value)
    assert "4 unusable of 6" in str(error.value)
    assert "good" not in str(error.value)
    # Or they are skipped and reported.
    indices, skipped = gsp.data.readable_images(paths, on_error="skip")
    assert indices == [0, 2]
    assert len(skipped) == 4
    assert "0 bytes" in skipped[str(paths[3])]


def test_a_folder_without_one_usable_file_is_an_error(paths):
    with pytest.raises(ValueError, match="on_error='ignore'"):
        gsp.data.readable_images(paths, on_error="ignore")
    with pytest.raises(ValueError, match="2 unusable of 2"):
        gsp.data.readable_images(paths[3:5], on_error="skip")
    with pytest.raises(ValueError, match="and 5 more"):
        gsp.data.readable_images([*"abcdefghijklmno"])
