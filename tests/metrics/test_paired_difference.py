"""paired_difference: what its interval must hold, and its laws."""

import numpy as np
import pytest

from keras_gsp.metrics import paired_difference

CLASSES = np.repeat(np.arange(8), 5)


def noisy_scores(seed, seeds=3):
    rng = np.random.default_rng(seed)
    base = rng.uniform(size=(seeds, 40))
    better = 0.05 + 0.02 * rng.normal(size=(1, 8))[:, CLASSES]
    better = better + 0.01 * rng.normal(size=(seeds, 1))
    return base + better, base


def slow_interval(scores_a, scores_b, classes):
    """Variance of the mean from explicit sums over seeds and classes."""
    stats = pytest.importorskip("scipy.stats")
    num_seeds, total = len(scores_a), np.size(scores_a)
    names = sorted(set(classes))
    mean = np.sum(np.subtract(scores_a, scores_b)) / total
    share = np.zeros((num_seeds, len(names)))
    for s in range(num_seeds):
        for q, name in enumerate(classes):
            gap = scores_a[s][q] - scores_b[s][q] - mean
            share[s, names.index(name)] += gap / total
    s_count, c_count = share.shape
    of_classes = sum(share[:, c].sum() ** 2 for c in range(c_count))
    of_seeds = sum(share[s].sum() ** 2 for s in range(s_count))
    rest = sum(
        (
            share[s, c]
            - share[s].sum() / c_count
            - share[:, c].sum() / s_count
            + share.sum() / share.size
        )
        ** 2
        for s in range(s_count)
        for c in range(c_count)
    )
    parts = [
        of_classes * c_count / (c_count - 1),
        of_seeds * s_count / (s_count - 1),
        rest * s_count * c_count / ((s_count - 1) * (c_count - 1)),
    ]
    freedoms = [c_count - 1, s_count - 1, (s_count - 1) * (c_count - 1)]
    variance = max(parts[0] + parts[1] - parts[2], *parts)
    freedom = variance**2 / sum(
        part**2 / free for part, free in zip(parts, freedoms, strict=True)
    )
    half = stats.t.ppf(0.975, freedom) * variance**0.5
    return mean, mean - half, mean + half


def test_equals_the_sums_over_seeds_and_classes():
    scores_a, scores_b = noisy_scores(0)
    found = paired_difference(scores_a, scores_b, CLASSES)
    expected = slow_interval(scores_a, scores_b, CLASSES.tolist())
    received = found["difference"], found["low"], found["high"]
    assert received == pytest.approx(expected, rel=1e-9)
    assert found["mean_a"] - found["mean_b"] == pytest.approx(expected[0])
    counts = found["num_queries"], found["num_classes"], found["num_seeds"]
    assert counts == (120, 8, 3)
    assert {type(value) for value in found.values()} == {int, float}


def test_one_query_a_class_and_one_seed_is_the_paired_t_interval():
    stats = pytest.importorskip("scipy.stats")
    first, second = np.random.default_rng(0).uniform(size=(2, 30))
    found = paired_difference(first, second, np.arange(30))
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx(tuple(expected))


@pytest.mark.parametrize("gap", [0.0, 0.25])
def test_a_constant_difference_has_no_width(gap):
    scores_b = np.round(np.random.default_rng(0).uniform(size=(2, 40)) * 64)
    found = paired_difference(scores_b + gap, scores_b, CLASSES)
    assert (found["low"], found["difference"], found["high"]) == (gap,) * 3


def test_queries_without_a_score_are_left_out():
    scores_a, scores_b = noisy_scores(3)
    expected = paired_difference(scores_a, scores_b, CLASSES)
    nothing = np.full((3, 2), np.nan)
    found = paired_difference(
        np.hstack([nothing, scores_a]),
        np.hstack([nothing, scores_b]),
        np.concatenate([[98, 99], CLASSES]),
    )
    assert found == expected
    # A seed without any is none.
    scores_a, scores_b = (
        np.vstack([scores, np.full(len(CLASSES), np.nan)])
        for scores in (scores_a, scores_b)
    )
    assert paired_difference(scores_a, scores_b, CLASSES) == expected


def test_seeds_may_have_queries_of_their_own():
    scores_a, scores_b = noisy_scores(4)
    expected = paired_difference(scores_a, scores_b, CLASSES)
    order = [np.random.default_rng(s).permutation(40) for s in range(3)]
    found = paired_difference(
        [row[o] for row, o in zip(scores_a, order, strict=True)],
        [row[o] for row, o in zip(scores_b, order, strict=True)],
        [[f"class {c}" for c in CLASSES[o]] for o in order],
    )
    for name, value in expected.items():
        assert found[name] == pytest.approx(value), name
    shorter = paired_difference(
        [scores_a[0], scores_a[1][:-1]],
        [scores_b[0], scores_b[1][:-1]],
        [CLASSES, CLASSES[:-1]],
    )
    assert shorter["num_queries"] == 79


def test_missing_scipy_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    with pytest.raises(ImportError, match=r"keras-gsp\[statistics\]"):
        paired_difference([0.0, 1.0], [1.0, 0.0], [0, 1])


@pytest.mark.parametrize("models", [3, 5, 10])
@pytest.mark.parametrize("spread", [(0.02, 0.0), (0.02, 0.02), (0.0, 0.05)])
def test_intervals_cover_other_models_and_other_classes(models, spread):
    """The true difference is inside about 95 of 100 intervals."""
    of_models, of_classes = spread
    rng = np.random.default_rng(models)
    classes = np.repeat(np.arange(20), 5)
    inside, draws = 0, 500
    for _ in range(draws):
        gains = (
            of_models * rng.normal(size=(models, 1))
            + of_classes * rng.normal(size=20)[classes]
            + 0.02 * rng.normal(size=(models, 20))[:, classes]
            + 0.1 * rng.normal(size=(models, 100))
        )
        found = paired_difference(gains + 0.01, np.zeros_like(gains), classes)
        inside += found["low"] < 0.01 < found["high"]
    # Three standard errors of the share below 0.95, and none above 1.
    assert 0.92 <= inside / draws
