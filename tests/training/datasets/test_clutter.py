"""One picture that counts, in front of many that distract."""

import numpy as np
import pytest

from training.datasets.clutter import clutter_splits, compose_clutter
from training.recipes.data import read_recipe
from training.recipes.recipe import Recipe


def drawing(color, side=20):
    """A filled square on white paper."""
    picture = np.full((side, side, 3), 255, "uint8")
    picture[4:16, 4:16] = color
    return picture


def test_what_counts_is_in_front_and_paper_is_transparent():
    pictures = np.stack([drawing((255, 0, 0))] * 6)
    backgrounds = np.stack([drawing((0, 0, 255))] * 3)
    made = compose_clutter(pictures, backgrounds, num_distractors=4)
    assert made.shape == pictures.shape and made.dtype == np.uint8
    for canvas in made:
        red = (canvas[..., 0] > 200) & (canvas[..., 1:] < 60).all(-1)
        # A side of 0.45 to 0.6 of the canvas, 0.6 of it drawn.
        assert 16 <= red.sum() <= 64
    again, other = (
        compose_clutter(pictures, backgrounds, 4, seed) for seed in (0, 1)
    )
    np.testing.assert_array_equal(made, again)
    assert (made != other).any()
    alone = compose_clutter(pictures, backgrounds, num_distractors=0)
    assert not ((alone[..., 2] > 200) & (alone[..., 0] < 60)).any()


def test_distractors_and_classes_are_split(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(10):
        folder = tmp_path / f"class{label}"
        folder.mkdir()
        for number in range(4):
            color = rng.integers(0, 200, 3)
            Image.fromarray(drawing(color)).save(folder / f"{number}.png")
    recipe = Recipe.of(
        dataset="clutter", data_dir=str(tmp_path), canvas_size=16
    )
    splits = read_recipe(recipe)
    sides = splits.train, splits.validation, splits.test
    assert [side.num_classes for side in sides] == [3, 2, 3]
    names = [name for side in sides for name in side.class_names]
    assert len(set(names)) == len(names) == 8
    assert all(side.images.shape[1:] == (16, 16, 3) for side in sides)
    few = clutter_splits(tmp_path, canvas_size=16, images_per_class=3)
    assert len(few.train) == 9
    with pytest.raises(ValueError, match="must hold an image"):
        clutter_splits(tmp_path, canvas_size=16, images_per_class=1)
