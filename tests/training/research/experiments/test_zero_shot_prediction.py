"""MAP_c and MAP_x differ by the classes that prototypes are fitted to."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training runs on TensorFlow", allow_module_level=True)

from training.research.experiments.zero_shot_prediction import retrieve_halves

LABELS = np.repeat(np.arange(4), 3)
FIRST = np.array([True, True, False, False])


def noisy(histograms):
    rng = np.random.default_rng(0)
    return histograms + 0.01 * rng.normal(size=histograms.shape)


def test_prototypes_that_carry_over_score_alike():
    corners = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.2], [0.2, 0.8]])
    histograms = noisy(corners[LABELS])
    embeddings = histograms @ np.array([[3.0, 0.0, 1.0], [0.0, 2.0, -1.0]])
    found = retrieve_halves(histograms, embeddings, LABELS, [FIRST], 1e-9)
    assert found == {"map": 1.0, "map_c": 1.0, "map_x": 1.0}


def test_prototypes_of_other_classes_alone_do_not():
    """What tells a class apart occurs in it alone; all share the fifth."""
    shared = np.random.default_rng(0).random(len(LABELS))
    histograms = np.column_stack([np.eye(4)[LABELS], 0.3 * shared])
    found = retrieve_halves(histograms, histograms, LABELS, [FIRST], 1e-6)
    assert found["map"] == found["map_c"] == 1.0
    assert found["map_x"] < 0.8
