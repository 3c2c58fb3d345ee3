"""Neighbor augmentation equals its equations, and settings are chosen."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval.augmentation import AugmentedRows

Augmentation = gsp.retrieval.NeighborAugmentation


def things(count, photographs, noise, seed=0):
    """Rows of things in 24 dimensions, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(count), photographs)
    centers = np.random.default_rng(9).normal(size=(count, 24))
    return centers[labels] + noise * rng.normal(size=(len(labels), 24)), labels


def by_the_equations(rows, queries, k, rounds, power, weight):
    """Similarities (queries, rows), by one loop over rows and queries."""

    def unit(row):
        return row / np.linalg.norm(row)

    def mixed(row, gallery, own=None):
        cosines = gallery @ row
        others = [j for j in np.argsort(-cosines) if j != own][:k]
        start = row.copy()
        for j in others:
            start = start + max(cosines[j], 0) ** power * gallery[j]
        return unit(start)

    gallery = first = np.stack([unit(row) for row in rows])
    asked = asked_first = np.stack([unit(row) for row in queries])
    for _ in range(rounds):
        asked = np.stack([mixed(row, gallery) for row in asked])
        gallery = np.stack(
            [mixed(row, gallery, own) for own, row in enumerate(gallery)]
        )
    return asked @ gallery.T + weight * asked_first @ first.T


@pytest.mark.parametrize(
    ("k", "rounds", "power", "weight"),
    [(2, 2, 3.0, 1.0), (5, 1, 1.0, 0.0), (3, 3, 2.0, 0.5), (0, 2, 3.0, 1.0)],
)
def test_similarities_are_those_of_the_equations(k, rounds, power, weight):
    rows, queries = things(8, 5, 1.0)[0], things(8, 1, 1.0, seed=1)[0]
    augmented = AugmentedRows(
        rows,
        Augmentation(k, rounds=rounds, power=power, original_weight=weight),
    )
    found = augmented.expanded(queries) @ augmented.rows.T
    expected = by_the_equations(rows, queries, k, rounds, power, weight)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_settings_are_chosen_where_they_gain_and_none_where_nothing_does():
    many, few = things(12, 20, 1.6), things(60, 2, 3.0)
    chosen = Augmentation.chosen(*many)
    assert chosen.num_neighbors >= 4
    assert Augmentation.chosen(*few, score="precision_at_1").num_neighbors == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_neighbors": -1}, "num_neighbors"),
        ({"rounds": 0}, "rounds"),
        ({"power": 0.0}, "power"),
        ({"original_weight": -1.0}, "original_weight"),
    ],
)
def test_numbers_out_of_their_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Augmentation(**arguments)


def test_a_choice_needs_a_class_of_two_and_a_known_score():
    rows, labels = things(4, 3, 1.0)
    with pytest.raises(ValueError, match="class of two"):
        Augmentation.chosen(rows, np.arange(len(rows)))
    with pytest.raises(ValueError, match="score"):
        Augmentation.chosen(rows, labels, score="recall")
