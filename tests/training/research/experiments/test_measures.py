"""Measures of the experiments against loops."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.research.experiments.zero_shot_prediction import retrieve_halves


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
