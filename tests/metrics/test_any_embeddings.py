"""Every metric for zeros, ties, huge and tiny numbers of every dtype."""

import itertools

import numpy as np
import pytest

import keras_gsp as gsp
from tests.metrics.test_retrieval import slow_rows

KINDS = ("normal", "zeros", "equal", "whole numbers", "huge", "tiny")
DTYPES = ("float16", "float32", "float64")
SIZES = [(2, 1), (5, 2), (12, 4), (6, 12)]  # Samples, classes.


def drawn(kind, dtype, count):
    generator = np.random.default_rng(count)
    rows = generator.normal(size=(count, 3))
    match kind:
        case "zeros":
            rows = rows * 0.0
        case "equal":
            rows = np.broadcast_to(rows[:1], rows.shape)
        case "whole numbers":  # Ties without rounding.
            rows = generator.integers(-2, 3, rows.shape)
        case "huge":
            rows = rows * (1e3 if dtype == "float16" else 1e15)
        case "tiny":
            rows = rows * (1e-3 if dtype == "float16" else 1e-15)
    return rows.astype(dtype)


def refused_or(function):
    try:
        return function()
    except ValueError as error:
        assert "must" in str(error) or "at least" in str(error), error
        return None


every_kind = pytest.mark.parametrize("kind", KINDS)


def cases(kind):
    for dtype, (count, num_classes) in itertools.product(DTYPES, SIZES):
        yield drawn(kind, dtype, count), np.arange(count) % num_classes


@every_kind
def test_retrieval_scores_are_those_of_a_loop(kind):
    for rows, labels in cases(kind):
        found = refused_or(
            lambda r=rows, y=labels: gsp.metrics.retrieval_scores(r, y)
        )
        if found is None or not found["num_queries"]:
            assert len(np.unique(labels)) == len(labels)
            continue
        assert found["num_queries"] + found["num_dropped"] == len(labels)
        _, slow = slow_rows(rows, labels)
        for name in ("precision_at_r", "map_at_r"):
            expected = np.mean([row[name] for row in slow])
            np.testing.assert_allclose(found[name], expected, rtol=1e-6)


@every_kind
def test_verification_scores_are_shares_and_reranking_is_finite(kind):
    for rows, labels in cases(kind):
        found = refused_or(
            lambda r=rows, y=labels: gsp.metrics.verification_scores(r, y)
        )
        for name, value in (found or {}).items():
            assert np.isfinite(value), name
            assert name.startswith("num") or 0.0 <= value <= 1.0, name
        found = refused_or(lambda r=rows: gsp.metrics.k_reciprocal(r))
        assert found is None or not np.isnan(found).any()


@pytest.mark.parametrize(
    "score",
    [
        gsp.metrics.retrieval_scores,
        gsp.metrics.verification_scores,
        lambda rows, labels: gsp.metrics.k_reciprocal(rows),
    ],
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, "nothing"])
def test_bad_embeddings_are_refused(score, bad):
    rows = np.ones((4, 3))
    if bad == "nothing":
        rows = rows[:0]
    else:
        rows[2, 1] = bad
    with pytest.raises(ValueError, match="Received"):
        score(rows, np.arange(len(rows)) % 2)
