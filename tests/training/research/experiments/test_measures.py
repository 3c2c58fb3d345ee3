"""Measures of the experiments against loops."""

from itertools import combinations

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.research.experiments.dominant_prototypes import histogram_facts
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


def test_facts_of_histograms_are_those_of_a_loop():
    histograms = np.random.default_rng(1).dirichlet(np.ones(4), size=7)
    histograms[3] = [1.0, 0.0, 0.0, 0.0]
    histograms[5] = histograms[4]
    found = histogram_facts(histograms)

    def entropy(shares):
        return -sum(s * np.log2(s) for s in shares if s > 0.0)

    evenness = [entropy(row) / np.log2(4) for row in histograms]
    np.testing.assert_allclose(found["evenness"], np.mean(evenness))
    # Square root of the Jensen-Shannon divergence in bits.
    distances = [
        np.sqrt(max(0, entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2))
        for a, b in combinations(histograms, 2)
    ]
    np.testing.assert_allclose(
        found["class_distance"], np.mean(distances), atol=1e-8
    )
    main = [int(np.argmax(row)) for row in histograms]
    assert found["main_prototypes"] == len(set(main))
    shared = [main.count(one) > 1 for one in main]
    np.testing.assert_allclose(found["shared_main"], np.mean(shared))


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
