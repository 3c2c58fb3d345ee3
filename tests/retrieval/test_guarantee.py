"""RetrievalGuarantee: coverage over classes, abstention, refusals."""

import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import (
    ExactIndex,
    RetrievalGuarantee,
    held_out_searches,
)
from keras_gsp.retrieval.guarantee import class_quantile, classes_needed


def encoder(size=8):
    return keras.Sequential([keras.Input((size,)), keras.layers.Identity()])


def drawn(rng, names, count, size=8, noise=0.6):
    """Classes of different spread around random centers."""
    labels = np.repeat(names, count)
    centers = rng.normal(size=(len(names), size))
    spread = noise * rng.uniform(0.5, 1.5, len(names))
    rows = np.repeat(centers, count, axis=0)
    noise = rng.normal(size=rows.shape) * np.repeat(spread, count)[:, None]
    return (rows + noise).astype("float32"), labels


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_the_quantile_weighs_classes_alike(level):
    rng = np.random.default_rng(0)
    classes = rng.integers(12, size=100)
    scores = rng.normal(size=100) + classes
    found = class_quantile(scores, classes, level, "coverage")

    def covered(r):
        return sum(np.mean(scores[classes == c] <= r) for c in range(12))

    assert covered(found) >= level * 13 - 1e-9
    assert covered(found - 1e-9) < level * 13 - 1e-9
    # One score a class: split conformal prediction, the ceil(0.95 * 20)-th.
    scores = np.arange(19.0)
    assert class_quantile(scores, scores, 0.95, "coverage") == 18.0
    needed = [classes_needed(level) for level in (0.5, 0.9, 0.95, 0.99)]
    assert needed == [1, 9, 19, 99]


@pytest.mark.parametrize("text", [False, True])
def test_the_promise_holds_for_the_lists_of_an_engine_with_one_probe(text):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(5)
    rows, labels = drawn(rng, np.arange(150), 9, noise=0.7)
    held_out = drawn(rng, np.arange(200, 300), 9, noise=0.7)
    is_query = np.arange(len(labels)) % 9 > 5
    ids = np.arange(900).astype(str) if text else None
    index = gsp.retrieval.FaissIndex(
        rows[~is_query], labels[~is_query], ids, factory="IVF32,Flat"
    )

    def covered(radius):
        found = index.search(rows[is_query], 200)
        is_right = found.labels == labels[is_query][:, None]
        return (is_right & (found.distances <= radius)).any(axis=1).mean()

    assert covered(np.inf) < 0.9  # one probe misses too many at any radius
    with pytest.warns(UserWarning, match="could not hold coverage=0.95"):
        guarantee = RetrievalGuarantee.calibrate(encoder(), index, held_out)
    assert index.parameters.startswith("nprobe=") and len(index) == 900
    assert covered(guarantee.radius) > 0.92
    found = index.search(rows[is_query], 1)
    assert (guarantee.set_sizes(found.distances) == 0).mean() < 0.09


def test_an_engine_is_asked_until_the_item_is_in_its_list(monkeypatch):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(5)
    index = gsp.retrieval.FaissIndex(
        *drawn(rng, np.arange(300), 6, noise=1.5), factory="IVF4,Flat"
    )
    held_out = drawn(rng, np.arange(400, 440), 5, noise=1.5)
    long = held_out_searches.held_out_searches(index, *held_out).right
    monkeypatch.setattr(held_out_searches, "LOOKED_AT", 2)
    short = held_out_searches.held_out_searches(index, *held_out).right
    np.testing.assert_array_equal(short, long)
    assert 0.05 < np.isinf(long).mean() < 0.5  # one probe misses some


def test_an_engine_that_misses_too_much_is_refused(monkeypatch):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(5)
    rows = drawn(rng, np.arange(150), 6)
    index = gsp.retrieval.FaissIndex(*rows, factory="IVF4,Flat")
    held_out = drawn(rng, np.arange(200, 300), 6)

    def nothing(self, queries, asked, **options):
        return np.full((len(queries), asked), -1)

    monkeypatch.setattr(gsp.retrieval.FaissIndex, "_proposed", nothing)
    with pytest.raises(ValueError, match=r"misses 1\.000 of them"):
        RetrievalGuarantee.calibrate(encoder(), index, held_out)
    assert index.parameters is None  # as before


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_queries_of_new_classes_are_covered_as_promised(coverage):
    rng = np.random.default_rng(2)
    model, hits, alarms = encoder(), [], []
    for _ in range(40):
        held_out = drawn(rng, np.arange(40), 4)
        rows, labels = drawn(rng, np.arange(100, 140), 6)
        known = np.tile([1, 1, 1, 0, 0, 0], 40).astype(bool)
        index = ExactIndex(rows[known], labels[known])
        guarantee = RetrievalGuarantee.calibrate(
            model, index, held_out, coverage, false_alarm_rate=0.1
        )
        found = index.search(rows[~known], k=len(index))
        inside = found.distances <= guarantee.radius
        is_right = found.labels == labels[~known][:, None]
        hits.append((inside & is_right).any(axis=1).mean())
        alarms.append((guarantee.set_sizes(found.distances) == 0).mean())
    # Standard error over 40 draws of 40 classes: about .01.
    assert coverage - 0.03 < np.mean(hits) < coverage + 0.06
    assert np.mean(alarms) < 0.13


def test_lists_of_declined_and_of_cut_queries_are_not_covered():
    space = gsp.retrieval.space_fingerprint(encoder())
    guarantee = RetrievalGuarantee(1.0, 0.9, 0.5, 0.1, 20, 60, space)
    distances = [[0.1, 0.9, 1.1], [0.1, 0.2, 0.3], [0.6, 0.7, np.inf]]
    assert guarantee.set_sizes(distances).tolist() == [2, 3, 0]
    assert guarantee.is_covered(distances).tolist() == [True, False, False]
    config = json.loads(json.dumps(guarantee.get_config()))
    assert RetrievalGuarantee.from_config(config) == guarantee


def test_wrong_calls_are_refused_by_name():
    rng = np.random.default_rng(4)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    index = ExactIndex.from_encoder(model, drawn(rng, np.arange(3), 3))
    held_out = drawn(rng, np.arange(10, 28), 3)

    def refused(message, gallery=index, data=held_out, **rates):
        with pytest.raises(ValueError, match=message):
            RetrievalGuarantee.calibrate(model, gallery, data, **rates)

    refused("at least 19 classes.*`coverage`. Received: 18")
    refused("at least 99 classes", coverage=0.99)
    rows = index.gallery.embeddings
    refused("two classes or more.*Received: 1, .''.", gallery=ExactIndex(rows))
    refused("`false_alarm_rate`", coverage=0.9, false_alarm_rate=0.01)
    refused(r"`coverage` must be in \(0, 1\)", coverage=1.0)
    refused("an empty index", gallery=ExactIndex())
    shared = drawn(rng, np.arange(20), 3)
    refused("not be in the gallery.*3 that are, for example 0", data=shared)
    other = ExactIndex(np.eye(4))
    other.space = gsp.retrieval.space_fingerprint(encoder())
    refused("`gallery` must hold the embedding space", gallery=other)
    with pytest.raises(ValueError, match="radius=inf"):
        RetrievalGuarantee(np.inf, 0.9, 0.5, 0.1, 20, 60)
