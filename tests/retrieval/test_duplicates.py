"""duplicates: groups of copies, and none among things that differ."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_gsp.retrieval import Retriever, duplicates


def test_copies_on_disk_are_grouped_the_largest_first(tmp_path):
    rng, net = np.random.default_rng(0), keras.Sequential()
    net.add(keras.Input((32, 32, 3)))
    net.add(keras.layers.AveragePooling2D(4))
    net.add(keras.layers.Flatten())
    for number in range(5):
        colors = rng.integers(0, 256, (12, 16, 3), "uint8")
        large = Image.fromarray(colors).resize((160, 120), Image.BICUBIC)
        large.save(tmp_path / f"{number}.jpg", quality=90)
        small = large.resize((80, 60), Image.LANCZOS)
        small.save(tmp_path / f"{number}-small.jpg", quality=60)
    # A flat folder is no reason to warn.
    retriever = Retriever.from_folder(tmp_path, net)
    groups = duplicates(retriever)
    expected = {(f"{i}.jpg", f"{i}-small.jpg") for i in range(5)}
    assert {tuple(group) for group in groups} == expected
    assert groups[0].sizes == ((120, 160), (60, 80))
    assert groups[0].distances[0] == 0 < groups[0].distances[1]
    (tmp_path / "0.jpg").unlink()
    sizes = {group.sizes[0] for group in duplicates(retriever.index)}
    assert sizes == {None}


@pytest.mark.parametrize("size", [2, 8, 64])
def test_chance_alone_makes_hardly_a_pair(size):
    rng = np.random.default_rng(size)
    rows = rng.normal(size=(400, size)).astype("float32")
    assert len(duplicates(rows)) <= 2
    # Thirty copies hide each other's surroundings, and are found.
    rows = np.concatenate([rows, rows[:1] + 1e-4 * rng.normal(size=(30, size))])
    (largest,) = (group for group in duplicates(rows) if len(group) > 2)
    assert set(largest) == {0, *range(400, 430)}


@pytest.mark.filterwarnings("error")
def test_a_collection_of_copies_alone_has_a_group_for_each():
    rows = np.random.default_rng(0).normal(size=(16, 64))
    groups = duplicates(np.repeat(rows, 33, axis=0))
    assert [len(group) for group in groups] == [33] * 16


def test_a_distance_may_be_given():
    rows = np.array([[0.0], [1.0], [1.5], [9.0]])
    assert [list(g) for g in duplicates(rows, distance=0.5)] == [[1, 2]]
    (group,) = duplicates(rows, distance=1.0)  # by way of the one between
    assert list(group) == [0, 1, 2] and group.distances == (0.0, 1.0, 1.5)
    assert not duplicates(rows, distance=0.1)
