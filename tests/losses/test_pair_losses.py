"""Laws of every pair loss: labels, references, edges and errors."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.list_wise import ListLoss
from tests.losses.pair_oracle import PAIR_LOSSES, batch, make, references
from tests.losses.tables import every_pair_case

# In these a pair that counts twice is the pair given twice.
SUMS = [
    case
    for case, (kind, *_) in PAIR_LOSSES.items()
    if case != "multi_similarity_mined" and not issubclass(kind, ListLoss)
]
LABELS = np.array([0, 1, 0, 2, 1, 0, 3])
ONE_HOT = np.eye(9, dtype="float32")[LABELS]


def vectors(size=7, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(size, 4)).astype("float32")


def same(labels, others=None):
    others = labels if others is None else others
    return labels[:, None] == others[None, :]


def assert_equal(found, expected, rtol=1e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol)


@every_pair_case
def test_matrices_and_multi_hot_rows_give_the_pairs_of_class_labels(case):
    loss, embeddings = make(case), vectors()
    expected = loss(LABELS, embeddings)
    assert expected > 0.0
    assert_equal(loss(same(LABELS), embeddings), expected)
    assert_equal(np.mean(loss.call(same(LABELS), embeddings)), expected)
    pairs = make(case, label_kind="pairs")
    assert_equal(pairs(same(LABELS).astype("float32"), embeddings), expected)
    multi_hot = make(case, label_kind="multi_hot")
    assert_equal(multi_hot(ONE_HOT, embeddings), expected)
    several = ONE_HOT + np.roll(ONE_HOT, 1, axis=0)  # Sharing one is enough.
    found = multi_hot(several, embeddings)
    assert_equal(found, loss(several @ several.T > 0, embeddings))

    others, known = np.array([1, 0, 2, 5]), vectors(4, seed=1)
    expected = loss.between(LABELS, embeddings, others, known)
    is_positive = same(LABELS, others)
    assert_equal(loss.between(is_positive, embeddings, None, known), expected)
    # References may have class numbers beside multi-hot labels.
    for given in (np.eye(9)[others], others):
        found = multi_hot.between(ONE_HOT, embeddings, given, known)
        assert_equal(found, expected)


@every_pair_case
def test_excluded_references_and_pairs_below_zero_leave_no_trace(case):
    labels, embeddings = batch()
    others, known, _ = references()
    excluded = np.zeros((10, 7), bool)
    excluded[:, 4:] = True
    loss = make(case)
    alone = loss.between(labels, embeddings, others[:4], known[:4])
    found = loss.between(labels, embeddings, others, known, excluded=excluded)
    assert_equal(found, alone)
    weights = same(labels, others).astype("float32")
    weights[:, 4:], weights[:, 6] = -1.0, np.nan
    pairs = make(case, label_kind="pairs")
    assert_equal(pairs.between(weights, embeddings, None, known), alone)


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
def test_a_pair_that_counts_twice_is_the_pair_twice(case):
    """Or at least changes the loss, where ranks or maxima decide."""
    random = np.random.default_rng(0)
    weights = random.choice([-1.0, 0.0, 1.0, 2.0], size=(7, 5))
    loss, known = make(case, label_kind="pairs"), vectors(5, seed=1)
    found = loss.between(weights, vectors(), None, known)
    if case in SUMS:
        again = np.where(weights == 2.0, 1.0, -1.0)
        twice = np.concatenate([np.minimum(weights, 1.0), again], axis=1)
        known = np.tile(known, (2, 1))
        assert_equal(found, loss.between(twice, vectors(), None, known))
    elif case in ("smooth_ap", "recall_at_k"):
        once = loss.between(np.minimum(weights, 1.0), vectors(), None, known)
        assert abs(float(found - once)) > 1e-4


# The N-pair loss alone has a first and a second sample of a class.
@pytest.mark.parametrize("case", sorted(PAIR_LOSSES))
def test_order_is_irrelevant(case):
    labels, embeddings = batch()
    order, loss = np.random.default_rng(3).permutation(10), make(case)
    found = loss(labels[order], embeddings[order])
    assert_equal(found, loss(labels, embeddings))


def test_a_batch_of_unknown_size_in_a_graph_and_nan_labels():
    """Every loss in one graph, and a matrix whose size is checked there."""
    import tensorflow as tf

    losses = [make(case) for case in PAIR_LOSSES]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float64),
            tf.TensorSpec([None, None], tf.bool),
            tf.TensorSpec([None, None], tf.float32),
        ],
        autograph=False,
    )
    def step(labels, is_positive, embeddings):
        of_matrix = losses[0](is_positive, embeddings)
        return of_matrix, [loss(labels, embeddings) for loss in losses]

    for size in (10, 6):
        labels, embeddings = batch(size)
        labels = labels.astype("float64")
        embeddings = embeddings.astype("float32")
        of_matrix, found = step(labels, same(labels), embeddings)
        expected = [loss(labels, embeddings) for loss in losses]
        assert_equal(found, expected)
        assert_equal(of_matrix, expected[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have shape"):
        step(labels, same(labels)[:, :5], embeddings)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not be NaN"):
        step(labels * np.nan, same(labels), embeddings)
    # Under XLA, which cannot raise, NaN labels give NaN.
    loss = gsp.losses.ContrastiveLoss()
    compiled = tf.function(lambda y: loss(y, vectors(4)), jit_compile=True)
    assert np.isnan(compiled(tf.constant([0.0, np.nan, 0.0, 1.0])))
    assert np.isfinite(compiled(tf.constant(np.zeros(4))))


def supcon(labels, kind="class"):
    return gsp.losses.SupConLoss(label_kind=kind)(labels, vectors())


def between(labels, rows, excluded=None):
    loss = gsp.losses.ContrastiveLoss()
    return loss.between(
        [0, 1], np.ones((2, 3)), labels, rows, excluded=excluded
    )


def test_what_does_not_fit_is_refused():
    for call, arguments, message in [
        (supcon, (np.ones(3),), "same length. Received: 3 and 7"),
        (supcon, (np.ones((7, 7), int),), 'need `label_kind="pairs"` or'),
        (supcon, (np.ones((7, 3), bool),), r"\(batch, batch\).*\(7, 3\)"),
        (supcon, (np.ones(7), "pairs"), r"references\). Received.*\(7,\)"),
        (supcon, (np.ones((7, 6)), "pairs"), r"shape \(7, 6\), with 7"),
        (supcon, (LABELS, "multi_hot"), "num_classes"),
        (between, ([0, 1], np.ones((2, 3, 1))), r"Received: shape \(2, 3, 1"),
        (between, ([0], np.ones((2, 3))), "`reference_labels` and"),
        (between, ([0, 1], np.ones((2, 4))), "same size. Received: 3 and 4"),
        (between, (None, np.ones((2, 3))), "`reference_labels` must be given"),
        (
            between,
            ([0, 1], np.ones((2, 3)), np.ones((2, 3), bool)),
            "`excluded` must have shape",
        ),
        (
            gsp.losses.SupConLoss(label_kind="multi_hot").between,
            (np.eye(7), vectors(), np.eye(6), vectors(6)),
            "Received: 7 and 6 columns",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call(*arguments)
