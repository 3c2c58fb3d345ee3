"""MatchThreshold: the rate it promises, and what it does with neighbors."""

import json

import numpy as np
import pytest

from keras_gsp.metrics import verification
from keras_gsp.retrieval import ExactIndex, MatchThreshold
from tests.metrics.test_verification import noisy_set


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
    monkeypatch.setattr(verification, "BLOCK_NUMBERS", numbers)
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
    for scale in (2.0**-60, 2.0**70):  # in the unit of the embeddings
        found = MatchThreshold.calibrated(
            points * points.dtype.type(scale), labels, false_accept_rate=0.1
        )
        assert found.distance == pytest.approx(threshold.distance * scale)


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.3])
def test_with_a_gallery_the_rate_counts_searches(rate):
    points, labels = noisy_set(3, count=400, classes=80, noise=0.2)
    index = ExactIndex(points[labels < 40], labels[labels < 40])
    rows, names = points[labels >= 40], labels[labels >= 40]
    match = MatchThreshold.calibrated(
        rows, names, gallery=index, false_accept_rate=rate
    )
    items = points[labels < 40].astype("float32")
    nearest = np.array([np.linalg.norm(items - r, axis=1).min() for r in rows])
    # The largest distance that at most this share of the searches reaches.
    assert np.sum(nearest <= match.distance) == int(rate * len(rows))
    assert match.num_negative_pairs == len(rows)
    assert match.gallery_size == len(index)
    # Beside all others of its class: every class of the gallery has more.
    large = ExactIndex(
        np.tile(items, (20, 1)), np.repeat([7, 8], 10 * len(items))
    )
    many = MatchThreshold.calibrated(rows, names, gallery=large)
    limit = many.distance
    between = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    is_other = (names[:, None] == names) & ~np.eye(len(rows), dtype=bool)
    own = np.where(is_other, between, np.inf).min(axis=1)
    is_known = np.isfinite(own)
    best = np.minimum(own, nearest)[is_known]
    assert many.true_accept_rate == np.mean(best <= limit)
    # By pairs, far more of the unknown images have a match.
    by_pairs = MatchThreshold.calibrated(rows, names, false_accept_rate=rate)
    assert np.mean(nearest <= by_pairs.distance) > 2 * rate
    rates, distances, known, unknown = zip(*match.acceptance, strict=True)
    assert rate in rates and list(distances) == sorted(distances)
    assert all(a <= b for a, b in zip(unknown, rates, strict=True))
    assert known[rates.index(rate)] == match.true_accept_rate
    assert f"**{match.distance:.4f}**" in match.table()
    config = json.loads(json.dumps(match.get_config()))
    assert MatchThreshold.from_config(config) == match


def searches_that_match(index, rows):
    return index.search(rows, k=1).is_match.mean()


@pytest.mark.parametrize("noise", [0.2, 0.6])
@pytest.mark.parametrize("growth", [0.4, 5, 15])
def test_the_distance_follows_the_size_of_the_gallery(noise, growth, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(900), 5)
    rows = rng.normal(size=(900, 16))[labels]
    rows += noise * rng.normal(size=rows.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held, size = slice(2500, None), int(100 * growth)
    index = ExactIndex(rows[:100], labels[:100])
    index.match = MatchThreshold.calibrated(
        rows[held], labels[held], gallery=index, false_accept_rate=0.05
    )
    assert searches_that_match(index, rows[held]) == 0.05
    fixed = index.match.distance
    if growth < 1:
        index.delete(np.arange(size, 100))
    else:
        index.add(rows[100:size], labels[100:size], np.arange(100, size))
    nearest = index.search(rows[held], k=1).distances
    assert 0.025 < searches_that_match(index, rows[held]) < 0.075
    assert (np.mean(nearest <= fixed) > 0.075) == (growth > 1)
    # One step or many, here or after loading: the same distance.
    index.save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index")
    assert loaded.match == index.match and loaded.match.gallery_size == size
    assert index.match.for_gallery(100).distance == pytest.approx(fixed)
    assert f"**{index.match.distance:.4f}**" in index.match.table()


def test_a_size_beyond_what_was_measured_is_warned_of():
    points, labels = noisy_set(3, count=400, classes=80, noise=0.2)
    index = ExactIndex(points[labels < 40], labels[labels < 40])
    rows, names = points[labels >= 40], labels[labels >= 40]
    index.match = MatchThreshold.calibrated(rows, names, gallery=index)
    pairs = MatchThreshold.calibrated(rows, names, false_accept_rate=0.05)
    far = 50 + np.random.default_rng(0).normal(size=(50_000, points.shape[1]))
    index.add(far, ids=np.arange(1000, 51_000), labels=np.zeros(50_000, int))
    with pytest.warns(UserWarning, match="Calibrate it again"):
        assert index.search(rows[:1], 1).is_match is not None
    index.match = pairs
    assert index.match == pairs
