"""search_recall: values counted by hand."""

import numpy as np
import pytest

from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.search_recall import compared


def found(indices, gallery_labels):
    indices = np.array(indices)
    is_there = indices >= 0
    labels = np.where(is_there, np.array(gallery_labels)[indices], -1)
    distances = np.where(is_there, 1.0, np.inf)
    return Neighbors(indices, labels, distances, indices, is_there.sum(1))


def test_recall_and_map_at_r_of_missing_neighbors():
    gallery_labels = [7, 8, 7, 8, 8, 7]
    exact = found([[0, 1, 2], [3, 4, 5]], gallery_labels)
    near = found([[0, 2, -1], [3, 4, 5]], gallery_labels)
    labels, positives = np.array([7, 8]), np.array([3, 3])
    facts = compared(exact, near, labels, positives, 2)
    # Query 0 finds one of {0, 1}, query 1 both of {3, 4}.
    assert facts["recall"] == pytest.approx(3 / 4)
    # R is 3; hits of query 0 at ranks 1 and 3, then at 1 and 2.
    scores = ((1 + 2 / 3) / 3 + 2 / 3) / 2, (2 / 3 + 2 / 3) / 2
    assert facts["map_at_r_exact"] == pytest.approx(scores[0])
    assert facts["map_at_r_approximate"] == pytest.approx(scores[1])
    nobody = compared(exact, near, labels, np.array([0, 0]), 2)
    assert nobody["map_at_r_exact"] is None
