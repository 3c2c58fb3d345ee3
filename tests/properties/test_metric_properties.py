"""Laws of every public metric, for any embeddings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keras_gsp as gsp
from tests.metrics.test_retrieval import slow_rows

KINDS = ("normal", "zeros", "equal", "whole numbers", "huge", "tiny")
DTYPES = ("float16", "float32", "float64")


def drawn(kind, dtype, count, seed):
    generator = np.random.default_rng(seed)
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


def labels_of(count, num_classes):
    return np.arange(count) % num_classes


ALL = st.sampled_from(KINDS), st.sampled_from(DTYPES)
SIZES = st.integers(2, 12), st.integers(1, 12), st.integers(0, 2**16)


@given(*ALL, *SIZES)
def test_retrieval_scores_are_those_of_a_loop(
    kind, dtype, count, num_classes, seed
):
    rows = drawn(kind, dtype, count, seed)
    labels = labels_of(count, num_classes)
    found = refused_or(lambda: gsp.metrics.retrieval_scores(rows, labels))
    if found is None or not found["num_queries"]:
        assert num_classes >= count
        return
    assert found["num_queries"] + found["num_dropped"] == count
    _, slow = slow_rows(rows, labels)
    for name in ("precision_at_r", "map_at_r"):
        expected = np.mean([row[name] for row in slow])
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


@given(*ALL, *SIZES)
def test_verification_scores_are_shares(kind, dtype, count, num_classes, seed):
    rows = drawn(kind, dtype, count, seed)
    labels = labels_of(count, num_classes)
    found = refused_or(lambda: gsp.metrics.verification_scores(rows, labels))
    for name, value in (found or {}).items():
        assert np.isfinite(value), name
        if not name.startswith("num"):
            assert 0.0 <= value <= 1.0, name


@given(*ALL, *SIZES)
def test_reranking_is_finite(kind, dtype, count, num_neighbors, seed):
    rows = drawn(kind, dtype, count, seed)
    expanded = refused_or(
        lambda: gsp.metrics.alpha_query_expansion(
            rows, num_neighbors=num_neighbors
        )
    )
    assert expanded is None or np.isfinite(expanded).all()
    distances = refused_or(lambda: gsp.metrics.k_reciprocal(rows))
    assert distances is None or not np.isnan(distances).any()


@given(st.integers(2, 20), st.integers(1, 20), SIZES[2])
def test_a_paired_difference_lies_in_its_interval(count, num_classes, seed):
    generator = np.random.default_rng(seed)
    ours, theirs = generator.random((2, 2, count))
    labels = labels_of(count, num_classes)
    found = refused_or(
        lambda: gsp.metrics.paired_difference(ours, theirs, [labels] * 2)
    )
    if found is None:
        return
    np.testing.assert_allclose(
        found["difference"], (ours - theirs).mean(), atol=1e-9
    )
    if found["low"] is not None and np.isfinite(found["low"]):
        assert found["low"] <= found["difference"] <= found["high"]


@pytest.mark.parametrize(
    "score",
    [
        gsp.metrics.retrieval_scores,
        gsp.metrics.verification_scores,
        lambda rows, labels: gsp.metrics.alpha_query_expansion(rows),
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
        score(rows, labels_of(len(rows), 2))
