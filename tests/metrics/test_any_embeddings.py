"""Every metric for zeros, ties, huge and tiny numbers of every dtype."""

import itertools

import numpy as np
import pytest

from keras_gsp import metrics
from tests.metrics.test_retrieval import slow_rows

SIZES = [(2, 1), (5, 2), (12, 4), (6, 12)]  # Samples, classes.
KINDS = {
    "normal": lambda rows: rows,
    "zeros": lambda rows: 0.0 * rows,
    "equal": lambda rows: rows[:1].repeat(len(rows), axis=0),
    "whole numbers": np.rint,  # Ties without rounding.
    "huge": lambda rows: rows * 1e3,
    "tiny": lambda rows: rows * 1e-3,
    "enormous": lambda rows: rows.astype("float32") * 1e15,
    "minute": lambda rows: rows.astype("float32") * 1e-15,
}


def refused_or(function, *arguments):
    try:
        return function(*arguments)
    except ValueError as error:
        assert "must" in str(error) or "at least" in str(error), error
        return {}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_shares_and_those_of_a_loop(kind):
    for dtype, (count, num_classes) in itertools.product(
        ("float16", "float32", "float64"), SIZES
    ):
        rows = np.random.default_rng(count).normal(size=(count, 3))
        rows, labels = KINDS[kind](rows.astype(dtype)), np.arange(count)
        labels = labels % num_classes
        verified = refused_or(metrics.verification_scores, rows, labels)
        for name, value in verified.items():
            assert name.startswith("num") or 0.0 <= value <= 1.0, name
        reranked = refused_or(metrics.k_reciprocal, rows)
        assert isinstance(reranked, dict) or np.isfinite(reranked).all()
        found = refused_or(metrics.retrieval_scores, rows, labels)
        if not found:
            assert len(np.unique(labels)) == len(labels)
            continue
        assert found["num_queries"] + found["num_dropped"] == len(labels)
        _, slow = slow_rows(rows, labels)
        for name in ("precision_at_r", "map_at_r"):
            expected = np.mean([row[name] for row in slow])
            np.testing.assert_allclose(found[name], expected, rtol=1e-6)
