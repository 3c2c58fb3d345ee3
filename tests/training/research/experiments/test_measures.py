"""Measures of the experiments against loops."""

from itertools import combinations

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.datasets import glyphs
from training.research.experiments.dominant_prototypes import (
    active_facts,
    dominated_mass,
    histogram_facts,
)
from training.research.experiments.zero_shot_prediction import retrieve_halves
from training.research.study_record import cell_share


def random_maps(count=5, rows=3, columns=4, prototypes=3, seed=0):
    shape = count, rows, columns, prototypes
    maps = np.random.default_rng(seed).random(shape)
    return maps / maps.sum(axis=(1, 2, 3), keepdims=True)


def distance(one, other):
    """Square root of the Jensen-Shannon divergence in bits."""
    middle = (one + other) / 2.0
    divergence = 0.0
    for p in (one, other):
        for share, mixed in zip(p, middle, strict=True):
            if share > 0.0:
                divergence += 0.5 * share * np.log2(share / mixed)
    return np.sqrt(max(divergence, 0.0))


def test_dominated_mass_is_that_of_a_loop():
    maps = random_maps()
    expected = np.zeros((5, 3))
    for image, row, column in np.ndindex(maps.shape[:3]):
        place = maps[image, row, column]
        expected[image, np.argmax(place)] += place.sum()
    np.testing.assert_allclose(dominated_mass(maps), expected)
    np.testing.assert_allclose(expected.sum(axis=1), 1.0)


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (3, 5)])
def test_mass_on_the_subject_is_that_of_a_loop(rows, columns):
    maps = random_maps(8, rows, columns)
    cells = np.arange(8) % 4
    masses = np.zeros(8)
    for image, row, column in np.ndindex(maps.shape[:3]):
        # Centers, in units of the canvas; 0.5 belongs to the later cell.
        below, right = (
            (row + 0.5) / rows >= 0.5,
            (column + 0.5) / columns >= 0.5,
        )
        if cells[image] == 2 * below + right:
            masses[image] += maps[image, row, column].sum()
    np.testing.assert_allclose(
        cell_share(maps.sum(-1), cells, 2), masses.mean()
    )


def test_facts_of_histograms_are_those_of_a_loop():
    histograms = np.random.default_rng(1).dirichlet(np.ones(4), size=7)
    histograms[3] = [1.0, 0.0, 0.0, 0.0]
    histograms[5] = histograms[4]
    found = histogram_facts(histograms)
    evenness, main = [], []
    for row in histograms:
        positive = [share for share in row if share > 0.0]
        evenness.append(-sum(s * np.log(s) for s in positive) / np.log(4))
        main.append(int(np.argmax(row)))
    distances = [distance(a, b) for a, b in combinations(histograms, 2)]
    np.testing.assert_allclose(found["evenness"], np.mean(evenness))
    np.testing.assert_allclose(found["class_distance"], np.mean(distances))
    assert found["main_prototypes"] == len(set(main))
    shared = [main.count(one) > 1 for one in main]
    np.testing.assert_allclose(found["shared_main"], np.mean(shared))


def test_active_sets_and_their_overlaps_are_those_of_a_loop():
    active = np.random.default_rng(2).random((9, 6)) < 0.6
    found = active_facts(active)
    overlaps = [
        (one & other).sum() / (one | other).sum()
        for one, other in combinations(active, 2)
    ]
    np.testing.assert_allclose(found["active"], active.sum() / 9)
    np.testing.assert_allclose(found["active_overlap"], np.mean(overlaps))


def test_letters_are_found_in_their_cells():
    sizes = {
        "train_classes": 3,
        "train_samples": 4,
        "validation_classes": 3,
        "test_classes": 4,
        "test_samples": 5,
    }
    # Alone on the canvas, the letter is where the ink is.
    splits = glyphs.load(**sizes, has_distractors=False)
    for side in ("train", "test"):
        cells = glyphs.letter_cells(side, **sizes, has_distractors=False)
        images = getattr(splits, side).images
        size = glyphs.CELL
        for image, cell in zip(images, cells, strict=True):
            row, column = size * (cell // 2), size * (cell % 2)
            own = image[row : row + size, column : column + size]
            assert own.min() < 128
            assert np.sum(image < 255) == np.sum(own < 255)


def test_prototypes_are_fitted_to_all_classes_or_to_the_others():
    """What carries over scores alike; what occurs in one class alone fails."""
    labels = np.repeat(np.arange(4), 3)
    first = np.array([True, True, False, False])
    rng = np.random.default_rng(0)
    corners = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.2], [0.2, 0.8]])
    histograms = corners[labels] + 0.01 * rng.normal(size=(12, 2))
    embeddings = histograms @ np.array([[3.0, 0.0, 1.0], [0.0, 2.0, -1.0]])
    found = retrieve_halves(histograms, embeddings, labels, [first], 1e-9)
    assert found == {"map": 1.0, "map_c": 1.0, "map_x": 1.0}
    shared = np.random.default_rng(0).random(len(labels))
    histograms = np.column_stack([np.eye(4)[labels], 0.3 * shared])
    found = retrieve_halves(histograms, histograms, labels, [first], 1e-6)
    assert found["map"] == found["map_c"] == 1.0
    assert found["map_x"] < 0.8
