"""Measures of the experiments against loops."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.research.experiments.zero_shot_prediction import retrieve_halves
from training.research.study_record import cell_share


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (3, 5)])
def test_mass_on_the_subject_is_that_of_a_loop(rows, columns):
    maps = np.random.default_rng(0).random((8, rows, columns))
    cells = np.arange(8) % 4
    masses = np.zeros(8)
    for image, row, column in np.ndindex(maps.shape):
        # Centers, in units of the canvas; 0.5 belongs to the later cell.
        below, right = (
            (row + 0.5) / rows >= 0.5,
            (column + 0.5) / columns >= 0.5,
        )
        if cells[image] == 2 * below + right:
            masses[image] += maps[image, row, column]
    np.testing.assert_allclose(cell_share(maps, cells, 2), masses.mean())


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
