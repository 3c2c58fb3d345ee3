import numpy as np
import pytest

from training.datasets import glyphs
from training.datasets.glyphs import (
    OUTLINE_SIZE,
    distinct_outlines,
)

SMALL = {
    "train_classes": 6,
    "train_samples": 4,
    "validation_classes": 3,
    "test_classes": 4,
    "test_samples": 5,
}


@pytest.fixture(scope="module")
def outlines():
    return distinct_outlines()


@pytest.mark.parametrize("look_alikes", ["AΑА", "OΟОoοо0", "PΡР", "Vv", "Ss"])
def test_look_alikes_of_alphabets_and_cases_are_one_class(
    outlines, look_alikes
):
    letters, _ = outlines
    assert len(set(look_alikes) & letters.keys()) == 1


def test_there_are_enough_letters_and_symbols_in_12_faces(outlines):
    letters, symbols = outlines
    assert len(letters) >= 310
    assert len(symbols) >= 300
    # They would pass for letters.
    assert not {"0", "|"} & symbols.keys()
    for drawn in (*letters.values(), *symbols.values()):
        assert drawn.shape == (12, OUTLINE_SIZE, OUTLINE_SIZE)


def test_sizes_are_as_asked_for_and_letters_are_disjoint():
    splits = glyphs.load(**SMALL)
    assert splits.train.class_sizes.tolist() == [4] * 6
    assert splits.validation.class_sizes.tolist() == [5] * 3
    assert splits.test.class_sizes.tolist() == [5] * 4
    assert splits.train.images.shape == (24, 48, 48, 3)
    names = [side.class_names for side in splits.sides().values()]
    assert len(set(sum(names, ()))) == 6 + 3 + 4
    glyphs.load.cache_clear()
    again, other = glyphs.load(**SMALL), glyphs.load(**SMALL, seed=1)
    assert np.array_equal(splits.test.images, again.test.images)
    assert splits.test.class_names == again.test.class_names
    assert splits.test.class_names != other.test.class_names
    with pytest.raises(ValueError, match="900 \\+ 60 \\+ 100"):
        glyphs.load(train_classes=900)


@pytest.mark.parametrize("across", [1, 3])
def test_a_canvas_may_have_more_or_fewer_cells(across):
    size = across * glyphs.CELL
    splits = glyphs.load(**SMALL, canvas_size=size)
    assert splits.train.images.shape == (24, size, size, 3)
    ink = splits.train.images[..., 0] < 255
    cells = ink.reshape(24, across, glyphs.CELL, across, glyphs.CELL)
    assert cells.any(axis=(2, 4)).all()
    with pytest.raises(ValueError, match="multiple of 24"):
        glyphs.load(**SMALL, canvas_size=size + 1)


def test_every_cell_holds_ink_and_only_one_without_distractors():
    cells = np.full((2, 2), glyphs.CELL)
    for has_distractors, filled in ((True, 4), (False, 1)):
        splits = glyphs.load(**SMALL, has_distractors=has_distractors)
        for image in splits.test.images:
            ink = (image[..., 0] < 200).reshape(2, cells[0, 0], 2, cells[0, 0])
            assert ink.any(axis=(1, 3)).sum() == filled
