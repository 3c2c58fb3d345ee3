"""k-reciprocal re-ranking against slow loops."""

import numpy as np
import pytest

from keras_gsp.metrics import k_reciprocal


def noisy_set(seed, count=40, classes=6, size=8, noise=0.35):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    points = np.eye(size)[labels] + noise * rng.normal(size=(count, size))
    return points, labels


def unit(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def slow_k_reciprocal(points, k1, k2, weight):
    """Zhong et al., sets and sums one by one."""
    points = unit(points)
    count = len(points)
    distances = np.array([np.sum((points - p) ** 2, axis=1) for p in points])
    distances /= distances.max(axis=1, keepdims=True)
    order = [
        sorted(range(count), key=lambda j, i=i: (distances[i, j], j))
        for i in range(count)
    ]

    def reciprocal(item, k):
        near = order[item][: k + 1]
        return {j for j in near if item in order[j][: k + 1]}

    encoding = np.zeros((count, count))
    for item in range(count):
        members = reciprocal(item, k1)
        for other in reciprocal(item, k1):
            half = reciprocal(other, int(np.around(k1 / 2)))
            if len(half & reciprocal(item, k1)) > 2 / 3 * len(half):
                members = members | half
        for other in members:
            encoding[item, other] = np.exp(-distances[item, other])
        encoding[item] /= encoding[item].sum()
    if k2 > 1:
        encoding = np.array([encoding[o[:k2]].mean(axis=0) for o in order])
    result = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            least = np.minimum(encoding[i], encoding[j]).sum()
            most = np.maximum(encoding[i], encoding[j]).sum()
            jaccard = 1 - least / most
            result[i, j] = (1 - weight) * jaccard + weight * distances[i, j]
    return result


@pytest.mark.parametrize("k2", [1, 3])
def test_k_reciprocal_equals_the_sets_and_sums(k2):
    points, _ = noisy_set(0)
    options = {"num_neighbors": 6, "num_expanded": k2}
    expected = slow_k_reciprocal(points, 6, k2, 0.3)
    found = k_reciprocal(points, **options)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    both = points[:10], points[10:]
    apart = k_reciprocal(*both, **options)
    np.testing.assert_allclose(apart, expected[:10, 10:], atol=1e-6)
