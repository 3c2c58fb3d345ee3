"""Similarity of sets of local features, against loops."""

import numpy as np
import pytest

from training.research.experiments.local_matching import (
    Items,
    Settings,
    choices,
    map_at_r,
    rankings,
    similarity,
)

RANDOM = np.random.default_rng(0)
ITEMS = Items(
    RANDOM.normal(size=(6, 3)),
    RANDOM.normal(size=(6, 5, 3)),
    np.sort(RANDOM.random((6, 5)))[:, ::-1],
    RANDOM.integers(2, size=(6, 5)),
)


@pytest.mark.parametrize("form", ["numbers", "code"])
@pytest.mark.parametrize("same", [False, True])
def test_best_matches_are_those_of_loops(form, same):
    items = ITEMS.first(4, form)
    assert items.features.shape == (6, 4, 3)
    np.testing.assert_allclose(np.linalg.norm(items.features, axis=-1), 1)
    np.testing.assert_allclose(items.mass.sum(axis=1), 1)
    found = similarity(0, items, np.array([2, 5]), "best", same)
    for value, other in zip(found, (2, 5), strict=True):
        cosines = np.zeros((4, 4))
        for i in range(4):
            for j in range(4):
                if not same or (
                    items.prototypes[0, i] == items.prototypes[other, j]
                ):
                    cosines[i, j] = (
                        items.features[0, i] @ items.features[other, j]
                    )
        forth = sum(items.mass[0, i] * max(cosines[i]) for i in range(4))
        back = sum(items.mass[other, j] * max(cosines[:, j]) for j in range(4))
        assert value == pytest.approx((forth + back) / 2)


def test_the_plan_of_equal_sets_moves_nearly_nothing():
    items = ITEMS.first(5, "numbers")
    found = similarity(1, items, np.arange(6), "transport", False)
    assert found.argmax() == 1 and found[1] > 0.95


def test_scores_are_average_precision_at_r():
    labels = np.array([0, 0, 0, 1, 1])
    nearest = np.array([[1, 3], [3, 0]])
    scores = map_at_r(nearest, labels, 2)
    np.testing.assert_allclose(scores, [1 / 2, 1 / 4])


def test_an_item_is_not_its_own_neighbor_and_weights_are_chosen():
    order, cosines = rankings(ITEMS.embeddings, ITEMS.embeddings)
    assert order.shape[1] == 6 and not (order[:, 0] == np.arange(6)).any()
    assert (np.diff(cosines[:, :5], axis=1) <= 0).all()
    settings = Settings(num_features=(2, 3), weights=(0.5, 1.0))
    chosen = choices(settings, ITEMS, np.array([0, 0, 0, 1, 1, 1]))
    assert {one for one, _ in chosen.values()} <= {2, 3}
    assert {one for _, one in chosen.values()} <= {0.5, 1.0}
