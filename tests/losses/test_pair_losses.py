"""Laws of every pair loss: labels, references, edges and errors."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.list_wise import ListLoss
from keras_gsp.ops import PairWeights
from tests.losses.pair_oracle import PAIR_LOSSES, batch, make
from tests.losses.tables import every_pair_case

# In these a pair that counts twice is the pair given twice.
SUMS = [
    case
    for case, (kind, *_) in PAIR_LOSSES.items()
    if case != "multi_similarity_mined" and not issubclass(kind, ListLoss)
]


def vectors(size=7, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(size, 4)).astype("float32")


def assert_equal(found, expected, rtol=1e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol)


@every_pair_case
def test_an_ignored_class_leaves_no_trace(case):
    labels = np.array([0, 1, 0, -1, 1, -1, 2])
    is_kept = labels >= 0
    loss = make(case, ignore_class=-1)
    terms = make(case, ignore_class=-1, reduction=None)(labels, vectors())
    np.testing.assert_array_equal(np.asarray(terms)[~is_kept], 0.0)
    kept = labels[is_kept], vectors()[is_kept]
    assert_equal(loss(labels, vectors()), make(case)(*kept))
    # Against references all anchors but the ignored ones count.
    found = loss.between(labels, vectors(), labels, vectors(7, 1))
    expected = make(case).between(*kept, kept[0], vectors(7, 1)[is_kept])
    assert_equal(found, expected)


@every_pair_case
def test_a_pair_that_a_miner_draws_twice_is_the_pair_twice(case):
    """Or at least changes the loss, where ranks or maxima decide."""
    random = np.random.default_rng(0)
    weights = random.choice([-1.0, 0.0, 1.0, 2.0], size=(7, 5))
    embeddings, known = vectors(), vectors(5, seed=1)

    def found(weights, known):
        pairs = PairWeights(
            np.maximum(weights, 0.0).astype("float32"),
            (weights == 0.0).astype("float32"),
        )
        unit, others = (
            x / np.linalg.norm(x, axis=1, keepdims=True)
            for x in (embeddings, known)
        )
        return float(np.mean(make(case).anchor_terms(unit, others, pairs)))

    if case in SUMS:
        again = np.where(weights == 2.0, 1.0, -1.0)
        twice = np.concatenate([np.minimum(weights, 1.0), again], axis=1)
        expected = found(twice, np.tile(known, (2, 1)))
        assert_equal(found(weights, known), expected)
    elif case in ("smooth_ap", "recall_at_k"):
        once = found(np.minimum(weights, 1.0), known)
        assert abs(found(weights, known) - once) > 1e-4


def test_a_batch_of_unknown_size_in_a_graph_and_nan_labels():
    """Every loss in one graph."""
    import tensorflow as tf

    losses = [make(case) for case in PAIR_LOSSES]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, None], tf.float32),
        ],
        autograph=False,
    )
    def step(labels, embeddings):
        return [loss(labels, embeddings) for loss in losses]

    for size in (10, 6):
        labels, embeddings = batch(size)
        embeddings = embeddings.astype("float32")
        expected = [loss(labels, embeddings) for loss in losses]
        assert_equal(step(labels, embeddings), expected)
    contrastive = gsp.losses.ContrastiveLoss()
    graph, floats = tf.function(contrastive), tf.constant(labels, "float64")
    assert_equal(graph(floats, embeddings), contrastive(labels, embeddings))
    with pytest.raises(tf.errors.InvalidArgumentError, match="whole numbers"):
        graph(floats * np.nan, embeddings)
