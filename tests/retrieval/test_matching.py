"""MatchThreshold: the rate it promises, and what it does with neighbors."""

import numpy as np
import pytest

import keras_gsp as gsp
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
@pytest.mark.parametrize("block_size", [None, 7])
def test_it_is_the_largest_distance_that_keeps_the_rate(rate, block_size):
    points, labels = noisy_set(0)
    threshold = MatchThreshold.calibrated(
        points, labels, false_accept_rate=rate, block_size=block_size
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


def test_queries_and_gallery_are_paired_across():
    points, labels = noisy_set(3)
    threshold = MatchThreshold.calibrated(
        points[:30],
        labels[:30],
        gallery_embeddings=points[30:],
        gallery_labels=labels[30:],
        false_accept_rate=0.05,
    )
    distances = np.linalg.norm(points[:30, None] - points[30:], axis=2)
    far = distances[labels[:30, None] != labels[30:]]
    assert np.sum(far <= threshold.distance) == int(0.05 * far.size)


def test_it_holds_on_other_pairs_of_the_same_kind():
    points, labels = noisy_set(4, count=600, classes=60)
    is_held_out = labels < 30
    threshold = MatchThreshold.calibrated(
        points[is_held_out], labels[is_held_out], false_accept_rate=0.05
    )
    _, far = pair_distances(points[~is_held_out], labels[~is_held_out])
    # 30 random centers give a rate that varies by a third or so.
    assert 0.02 < np.mean(far <= threshold.distance) < 0.1


def test_a_new_class_is_enrolled_without_training():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    points = np.eye(12)[labels] + 0.05 * rng.normal(size=(72, 12))
    known = labels < 8
    threshold = MatchThreshold.calibrated(
        points[known], labels[known], false_accept_rate=0.002
    )
    index = gsp.retrieval.ExactIndex(
        points[known], labels=labels[known], ids=np.flatnonzero(known)
    )
    first, query = np.flatnonzero(labels == 11)[:2]
    found = index.search(points[query], k=3)
    assert not threshold.is_match(found.distances).any()
    index.add(points[[first]], labels=labels[[first]], ids=[first])
    found = index.search(points[query], k=3)
    assert threshold.is_match(found.distances).tolist() == [
        [True, False, False]
    ]
    assert found.labels[0, 0] == 11


def test_no_neighbor_is_no_match():
    threshold = MatchThreshold(1.0, 0.1, 0.9, 10, 10)
    found = threshold.is_match([[0.5, 1.0, 1.5, np.inf, np.nan]])
    assert found.tolist() == [[True, True, False, False, False]]


def test_config_is_plain_numbers_and_comes_back():
    import json

    points, labels = noisy_set(0)
    threshold = MatchThreshold.calibrated(points, labels)
    config = json.loads(json.dumps(threshold.get_config()))
    assert MatchThreshold.from_config(config) == threshold


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.nan, 0.1, 0.9, 1, 1), "distance=nan"),
        ((-1.0, 0.1, 0.9, 1, 1), "distance=-1.0"),
        ((1.0, 1.0, 0.9, 1, 1), "false_accept_rate=1.0"),
        ((1.0, 0.1, 1.9, 1, 1), "true_accept_rate=1.9"),
        ((1.0, 0.1, 0.9, 0, 1), "num_positive_pairs=0"),
    ],
)
def test_bad_thresholds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MatchThreshold(*arguments)


def test_too_few_pairs_for_the_rate_are_refused():
    points, labels = noisy_set(0, count=12)
    _, far = pair_distances(points, labels)
    with pytest.raises(ValueError, match=f"{len(far)} pairs.*at least"):
        MatchThreshold.calibrated(points, labels, false_accept_rate=1e-3)
    with pytest.raises(ValueError, match="false_accept_rate=0"):
        MatchThreshold.calibrated(points, labels, false_accept_rate=0)


def test_identical_classes_cannot_be_told_apart():
    with pytest.raises(ValueError, match="32 pairs are identical"):
        MatchThreshold.calibrated(
            np.ones((12, 3)), [0, 1, 1] * 4, false_accept_rate=0.5
        )
