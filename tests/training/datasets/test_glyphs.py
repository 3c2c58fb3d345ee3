import numpy as np
import pytest

from training.datasets import glyphs

SMALL = {"train_classes": 6, "train_samples": 4, "validation_classes": 3}
SMALL |= {"test_classes": 4, "test_samples": 5}


@pytest.mark.slow
def test_letters_and_symbols_in_12_faces_have_no_look_alikes():
    letters, symbols = glyphs.distinct_outlines()
    for look_alikes in ("AΑА", "OΟОoοо0", "PΡР", "Vv", "Ss"):
        assert len(set(look_alikes) & letters.keys()) == 1
    assert len(letters) >= 310
    assert len(symbols) >= 300
    # They would pass for letters.
    assert not {"0", "|"} & symbols.keys()
    for drawn in (*letters.values(), *symbols.values()):
        assert drawn.shape == (12, glyphs.OUTLINE_SIZE, glyphs.OUTLINE_SIZE)


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


@pytest.mark.parametrize("across", [1, 2, 3])
def test_every_cell_of_a_canvas_of_any_size_has_ink(across):
    size = across * glyphs.CELL
    splits = glyphs.load(**SMALL, canvas_size=size)
    assert splits.train.images.shape == (24, size, size, 3)
    ink = splits.train.images[..., 0] < 255
    cells = ink.reshape(24, across, glyphs.CELL, across, glyphs.CELL)
    assert cells.any(axis=(2, 4)).all()
    with pytest.raises(ValueError, match="multiple of 24"):
        glyphs.load(**SMALL, canvas_size=size + 1)


def test_without_distractors_the_letters_cell_alone_has_ink():
    splits = glyphs.load(**SMALL, distractors=False)
    images = splits.test.images[..., 0]
    ink = (images < 200).reshape(-1, 2, glyphs.CELL, 2, glyphs.CELL)
    filled = ink.any(axis=(2, 4)).reshape(-1, 4)
    assert (filled.sum(1) == 1).all()
    cells = glyphs.letter_cells("test", **SMALL, distractors=False)
    np.testing.assert_array_equal(filled.argmax(1), cells)
