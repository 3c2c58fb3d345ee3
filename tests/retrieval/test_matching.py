"""MatchThreshold: the rate it promises, and what it does with neighbors."""

import numpy as np
import pytest

from keras_gsp.metrics import pair_distances as pairs
from keras_gsp.retrieval import MatchThreshold


def noisy_set(seed, count=80, classes=9, noise=0.5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    centers = rng.normal(size=(classes, 5))
    return centers[labels] + noise * rng.normal(size=(count, 5)), labels


def pair_distances(points, labels):
    rows, columns = np.triu_indices(len(points), 1)
    distances = np.linalg.norm(points[rows] - points[columns], axis=1)
    is_same = labels[rows] == labels[columns]
    return distances[is_same], distances[~is_same]


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.2, 0.99])
@pytest.mark.parametrize("numbers", [2**24, 7 * 80])
def test_it_is_the_largest_distance_that_keeps_the_rate(
    rate, numbers, monkeypatch
):
    monkeypatch.setattr(pairs, "BLOCK_NUMBERS", numbers)
    points, labels = noisy_set(0)
    threshold = MatchThreshold.calibrated(
        points, labels, false_accept_rate=rate
    )
    near, far = pair_distances(points, labels)
    assert np.sum(far <= threshold.distance) == int(rate * len(far))
    expected = np.mean(near <= threshold.distance)
    assert threshold.true_accept_rate == pytest.approx(expected)
    assert threshold.num_positive_pairs == len(near)
    assert threshold.num_negative_pairs == len(far)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ties_at_the_threshold_are_refused_together(dtype):
    points, labels = noisy_set(1)
    points = np.round(2 * points).astype(dtype)
    threshold = MatchThreshold.calibrated(points, labels, false_accept_rate=0.1)
    _, far = pair_distances(points, labels)
    accepted = np.mean(far <= threshold.distance)
    nearest_refused = far[far > threshold.distance].min()
    assert accepted <= 0.1 < np.mean(far <= nearest_refused)


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**70])
def test_the_distance_is_in_the_unit_of_the_embeddings(scale):
    points, labels = noisy_set(2)
    points = points.astype("float32")
    expected = MatchThreshold.calibrated(points, labels, false_accept_rate=0.1)
    found = MatchThreshold.calibrated(
        points * np.float32(scale), labels, false_accept_rate=0.1
    )
    assert found.distance == pytest.approx(expected.distance * scale)


def test_no_neighbor_is_no_match():
    threshold = MatchThreshold(1.0, 0.1, 0.9, 10, 10)
    found = threshold.is_match([[0.5, 1.0, 1.5, np.inf, np.nan]])
    assert found.tolist() == [[True, True, False, False, False]]


def test_bad_thresholds_are_refused():
    for arguments, message in [
        ((np.nan, 0.1, 0.9, 1, 1), "distance=nan"),
        ((-1.0, 0.1, 0.9, 1, 1), "distance=-1.0"),
        ((1.0, 1.0, 0.9, 1, 1), "false_accept_rate=1.0"),
        ((1.0, 0.1, 1.9, 1, 1), "true_accept_rate=1.9"),
        ((1.0, 0.1, 0.9, 0, 1), "num_positive_pairs=0"),
    ]:
        with pytest.raises(ValueError, match=message):
            MatchThreshold(*arguments)


def test_a_rate_that_no_distance_has_is_refused():
    points, labels = noisy_set(0, count=12)
    _, far = pair_distances(points, labels)
    equal = np.ones((12, 3)), [0, 1, 1] * 4
    for data, rate, message in [
        ((points, labels), 1e-3, f"{len(far)} pairs.*at least"),
        ((points, labels), 0, "false_accept_rate=0"),
        (equal, 0.5, "32 pairs are identical"),
    ]:
        with pytest.raises(ValueError, match=message):
            MatchThreshold.calibrated(*data, false_accept_rate=rate)
