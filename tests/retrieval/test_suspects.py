"""Planted errors of a labeled collection are found, clean ones are left."""

import numpy as np
import pytest

import keras_gsp as gsp


def collection(classes=8, images=12, size=16, noise=0.15, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    rows = np.eye(size)[labels] + noise * rng.normal(size=(len(labels), size))
    return rows.astype("float32"), labels


def test_what_is_planted_is_found_and_nothing_else():
    found = gsp.retrieval.suspects(*collection())
    assert not len(found.wrong_labels) and not len(found.duplicates)
    assert not found.same_classes
    assert found.label_scores.min() > 0.5
    rows, labels = collection(images=40)
    names = np.array([f"class {label}" for label in labels])
    names[[5, 130]] = "class 7", "class 6"
    twin, far = rows[200] + 0.001, np.eye(16)[12]
    rows = np.concatenate([rows, [twin, far]]) * 3.0
    names = np.append(names, ["class 5", "class 0"])
    found = gsp.retrieval.suspects(rows, names)
    assert {5, 130} <= set(found.wrong_labels.tolist()) <= {5, 130, 321}
    assert found.suggested[[5, 130]].tolist() == ["class 0", "class 3"]
    assert found.duplicates.tolist() == [[200, 320]]
    assert found.outliers[0] == 321
    huge = gsp.retrieval.suspects(rows * 1e300, names)
    assert huge.duplicates.tolist() == [[200, 320]]
    half = rows.astype("float16")
    same = gsp.retrieval.suspects(half.astype("float32"), names)
    half = gsp.retrieval.suspects(half, names)
    np.testing.assert_array_equal(half.label_scores, same.label_scores)


def test_a_class_under_two_names_and_one_of_one_item():
    rows, labels = collection()
    labels = np.where((labels == 2) & (np.arange(len(labels)) % 2), 9, labels)
    labels[0] = 99
    found = gsp.retrieval.suspects(rows, labels)
    assert found.same_classes == [(2, 9)]
    assert found.label_scores[0] == 1
    assert set(labels[found.wrong_labels]) <= {2, 9}


def test_items_of_small_classes_are_no_outliers_and_no_copies():
    rows, labels = collection(classes=20, images=30, size=64)
    is_kept = (labels < 10) | (np.arange(len(labels)) % 6 == 0)
    rows, labels = rows[is_kept], labels[is_kept]
    found = gsp.retrieval.suspects(rows, labels)
    assert not len(found.duplicates)
    assert np.sum(labels[found.outliers] >= 10) < 0.2 * np.sum(labels >= 10)
    twins = np.concatenate([rows, rows[:1] + 1e-4])
    found = gsp.retrieval.suspects(twins, np.append(labels, labels[0]))
    assert found.duplicates.tolist() == [[0, len(rows)]]


@pytest.mark.parametrize("classes", [4, 10])
@pytest.mark.parametrize("share", [0.03, 0.05])
def test_many_wrong_labels_hide_none_of_them(classes, share):
    rows, labels = collection(classes, images=40)
    rng = np.random.default_rng(1)
    planted = rng.choice(len(labels), round(share * len(labels)), replace=False)
    others = rng.integers(1, classes, len(planted))
    labels[planted] = (labels[planted] + others) % classes
    found = gsp.retrieval.suspects(rows, labels).wrong_labels
    assert set(found) <= set(planted)
    assert len(found) >= 0.7 * len(planted)


def test_labels_that_no_neighbor_confirms_are_not_all_wrong():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 8)), np.repeat(np.arange(30), 2)
    rows[1::2] = -rows[::2] + 0.1 * rng.normal(size=(30, 8))
    found = gsp.retrieval.suspects(rows, labels)
    assert np.isfinite(found.label_scores).all()
    assert len(found.wrong_labels) < 20


def test_scores_are_those_of_a_loop():
    rows, labels = collection(classes=3, images=4, size=5, noise=0.6)
    found = gsp.retrieval.suspects(rows, labels)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    means = np.empty((12, 3, 5))
    for item, one in np.ndindex(12, 3):
        others = (labels == one) & (np.arange(12) != item)
        mean = rows[others].mean(axis=0)
        means[item, one] = mean / np.linalg.norm(mean)
    cosines = np.einsum("ncs,ns->nc", means, rows)

    def probabilities(temperature):
        shares = np.exp(cosines / temperature)
        return shares / shares.sum(axis=1, keepdims=True)

    def likelihood(temperature):
        own = probabilities(temperature)[np.arange(12), labels]
        return np.log(own).sum()

    best = max(np.geomspace(0.01, 1.0, 13), key=likelihood)
    shares = probabilities(best)
    own = shares[np.arange(12), labels]
    class_means = np.array([own[labels == one].mean() for one in range(3)])
    np.testing.assert_allclose(
        found.label_scores, own / class_means[labels], rtol=1e-3
    )
    shares[np.arange(12), labels] = -1
    assert found.suggested.tolist() == shares.argmax(axis=1).tolist()
