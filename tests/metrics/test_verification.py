"""verification_scores against scikit-learn on pairs from a loop."""

import numpy as np
import pytest

from keras_gsp.metrics import verification, verification_scores


def noisy_set(seed, count=60, classes=9, size=5, noise=0.8):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    centers = rng.normal(size=(classes, size))
    return centers[labels] + noise * rng.normal(size=(count, size)), labels


def pair_list(points, labels):
    """Squared distance and class equality of each pair, one at a time."""
    distances, is_same = [], []
    for i in range(len(points)):
        for j in range(i):
            distances.append(np.sum((points[i] - points[j]) ** 2))
            is_same.append(labels[j] == labels[i])
    return np.array(distances), np.array(is_same)


RATES = (0.0, 1e-3, 0.05, 0.5, 1.0)


@pytest.mark.parametrize("numbers", [2**24, 60, 7 * 60])
@pytest.mark.parametrize("has_ties", [False, True])
def test_equals_scikit_learn_on_all_pairs(numbers, has_ties, monkeypatch):
    metrics = pytest.importorskip("sklearn.metrics")
    optimize = pytest.importorskip("scipy.optimize")
    monkeypatch.setattr(verification, "BLOCK_NUMBERS", numbers)
    for seed, classes in enumerate((2, 9, 25)):
        points, labels = noisy_set(seed, classes=classes)
        points = np.round(points) if has_ties else points
        scores = verification_scores(points, labels, false_accept_rates=RATES)
        distances, is_same = pair_list(points, labels)
        assert scores["num_positive_pairs"] == is_same.sum()
        assert scores["num_negative_pairs"] == (~is_same).sum()
        expected = metrics.roc_auc_score(is_same, -distances)
        assert scores["auc"] == pytest.approx(expected, abs=1e-12)
        far, tar, _ = metrics.roc_curve(
            is_same, -distances, drop_intermediate=False
        )
        for rate in RATES:
            name = f"true_accept_rate_at_{rate:g}"
            assert scores[name] == pytest.approx(tar[far <= rate].max())
        crossing = optimize.brentq(
            lambda f, far=far, tar=tar: 1 - f - np.interp(f, far, tar),
            *(0, 1),
            xtol=1e-14,
        )
        assert scores["equal_error_rate"] == pytest.approx(crossing, abs=1e-9)


def test_separated_classes_make_no_error():
    labels = np.repeat(np.arange(4), 3)
    scores = verification_scores(np.eye(4)[labels], labels)
    assert scores["auc"] == 1.0
    assert scores["equal_error_rate"] == 0.0
    assert scores["true_accept_rate_at_0.0001"] == 1.0


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**80])
def test_scale_and_offset_change_nothing(scale):
    points, labels = noisy_set(1)
    points = (np.round(points * 16) / 16).astype("float32")
    expected = verification_scores(points, labels)
    assert verification_scores(points * np.float32(scale), labels) == expected
    assert verification_scores(points + np.float32(1024), labels) == expected


def test_few_thresholds_stay_within_their_step(monkeypatch):
    points, labels = noisy_set(0, count=120, classes=3)
    exact = verification_scores(points, labels)
    monkeypatch.setattr(verification, "MAX_THRESHOLDS", 200)
    found = verification_scores(points, labels)
    for name in ("auc", "equal_error_rate"):
        # The curve is straight for at most 1 / 199 of the positives.
        assert found[name] == pytest.approx(exact[name], abs=0.5 / 199)
        assert found[name] != exact[name]
