"""Laws of every pair loss: labels, references, edges and errors."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from tests.gradients import gradients
from tests.losses.pair_oracle import PAIR_LOSSES, batch, make, references

every_loss = pytest.mark.parametrize("case", PAIR_LOSSES)
# The N-pair loss alone has a first and a second sample of a class.
every_loss_without_order = pytest.mark.parametrize(
    "case", [case for case in PAIR_LOSSES if case != "n_pair"]
)
# In these a pair that counts twice is the pair given twice.
every_sum = pytest.mark.parametrize(
    "case",
    [
        case
        for case, (kind, *_) in PAIR_LOSSES.items()
        if case not in ("lifted_structure", "n_pair", "multi_similarity_mined")
        and not issubclass(kind, gsp.losses.ListLoss)
    ],
)
LABELS = np.array([0, 1, 0, 2, 1, 0, 3])


def vectors(size=7, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(size, 4)).astype("float32")


def same(labels, others=None):
    others = labels if others is None else others
    return labels[:, None] == others[None, :]


def assert_equal(found, expected, rtol=1e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol)


@every_loss
def test_any_numbers_are_labels(case):
    labels, embeddings = batch()
    loss = make(case)
    expected = loss(labels, embeddings)
    for form in (
        labels.astype("int32"),
        labels.astype("float32"),
        labels[:, None],
        labels.tolist(),
        -labels,
        labels.astype("int64") + 98_765_432_100,
    ):
        np.testing.assert_array_equal(loss(form, embeddings), expected)
    value = loss.between(form, embeddings, form, embeddings)
    np.testing.assert_array_equal(
        value, loss.between(labels, embeddings, labels, embeddings)
    )


@every_loss
def test_matrices_and_multi_hot_rows_give_the_pairs_of_class_labels(case):
    loss, embeddings = make(case), vectors()
    expected = loss(LABELS, embeddings)
    assert expected > 0.0
    assert_equal(loss(same(LABELS), embeddings), expected)
    assert_equal(np.mean(loss.call(same(LABELS), embeddings)), expected)
    pairs = make(case, label_kind="pairs")
    assert_equal(pairs(same(LABELS).astype("float32"), embeddings), expected)
    one_hot = np.eye(9, dtype="float32")[LABELS]
    multi_hot = make(case, label_kind="multi_hot")
    assert_equal(multi_hot(one_hot, embeddings), expected)

    others, known = np.array([1, 0, 2, 5]), vectors(4, seed=1)
    expected = loss.between(LABELS, embeddings, others, known)
    is_positive = same(LABELS, others)
    assert_equal(loss.between(is_positive, embeddings, None, known), expected)
    rows = np.eye(9)[others]
    assert_equal(multi_hot.between(one_hot, embeddings, rows, known), expected)
    # References may have class numbers beside multi-hot labels.
    assert_equal(
        multi_hot.between(one_hot, embeddings, others, known), expected
    )


@every_loss
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


@every_loss
def test_an_ignored_label_leaves_no_trace(case):
    labels = np.array([0, 1, 0, -1, 1, -1, 2])
    is_kept = labels >= 0
    loss = make(case, ignored_label=-1)
    terms = make(case, ignored_label=-1, reduction=None)(labels, vectors())
    np.testing.assert_array_equal(np.asarray(terms)[~is_kept], 0.0)
    kept = labels[is_kept], vectors()[is_kept]
    assert_equal(loss(labels, vectors()), make(case)(*kept))
    # Against references all anchors but the ignored ones count.
    found = loss.between(labels, vectors(), labels, vectors(7, 1))
    expected = make(case).between(*kept, kept[0], vectors(7, 1)[is_kept])
    assert_equal(found, expected)


@every_sum
def test_a_pair_that_counts_twice_is_the_pair_twice(case):
    random = np.random.default_rng(0)
    weights = random.choice([-1.0, 0.0, 1.0, 2.0], size=(7, 5))
    loss, known = make(case, label_kind="pairs"), vectors(5, seed=1)
    again = np.where(weights == 2.0, 1.0, -1.0)
    twice = np.concatenate([np.minimum(weights, 1.0), again], axis=1)
    assert_equal(
        loss.between(weights, vectors(), None, known),
        loss.between(twice, vectors(), None, np.tile(known, (2, 1))),
    )


@pytest.mark.parametrize("case", ["smooth_ap", "recall_at_k"])
def test_a_weight_changes_the_loss_of_a_list(case):
    weights = same(LABELS).astype("float64")
    loss = make(case, label_kind="pairs")
    expected = loss(weights, vectors())
    weights[0, 2] = 3.0
    assert abs(float(loss(weights, vectors()) - expected)) > 1e-4


def test_samples_that_share_a_class_are_positive():
    several = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
    is_positive = several @ several.T > 0
    found = gsp.losses.SupConLoss(label_kind="multi_hot")(several, vectors(4))
    expected = gsp.losses.SupConLoss()(is_positive, vectors(4))
    np.testing.assert_array_equal(found, expected)


@every_loss_without_order
def test_order_is_irrelevant_and_a_batch_is_its_own_references(case):
    labels, embeddings = batch()
    order = np.random.default_rng(3).permutation(10)
    loss = make(case)
    expected = loss(labels, embeddings)
    assert_equal(loss(labels[order], embeddings[order]), expected)
    diagonal = np.eye(10, dtype=bool)
    found = loss.between(
        labels, embeddings, labels, embeddings, excluded=diagonal
    )
    assert_equal(found, expected)


@every_loss
def test_sample_weights_multiply_the_terms_of_their_anchors(case):
    labels, embeddings = batch()
    weights = np.linspace(0.0, 2.0, 10)
    terms = make(case, reduction=None)(labels, embeddings)
    assert terms.shape == (10,)
    value = make(case)(labels, embeddings, sample_weight=weights)
    assert_equal(value, np.mean(keras.ops.convert_to_numpy(terms) * weights))


@every_loss
def test_value_and_gradient_are_always_finite(case):
    spread = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    loss = make(case)
    opposite = spread[:1] * np.array([[1.0], [-1.0], [1.0], [-1.0]], "float32")
    for embeddings in (spread, spread[[0] * 4], 0.0 * spread, opposite):
        for labels in ([0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 1, 1]):
            assert np.isfinite(loss(labels, embeddings))
            (slope,) = gradients(lambda e, y=labels: loss(y, e), embeddings)
            assert np.all(np.isfinite(slope))


@every_loss
def test_a_single_embedding_costs_nothing(case):
    embeddings = np.ones((1, 4), "float32")
    loss = make(case)
    np.testing.assert_array_equal(loss([3], embeddings), 0.0)
    (gradient,) = gradients(lambda e: loss([3], e), embeddings)
    np.testing.assert_array_equal(gradient, 0.0)


def test_a_batch_of_unknown_size_in_a_graph():
    """Every loss in one graph, and a matrix whose size is checked there."""
    import tensorflow as tf

    losses = [make(case) for case in PAIR_LOSSES]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, None], tf.bool),
            tf.TensorSpec([None, None], tf.float32),
        ]
    )
    def step(labels, is_positive, embeddings):
        of_matrix = losses[0](is_positive, embeddings)
        return of_matrix, [loss(labels, embeddings) for loss in losses]

    for size in (10, 6):
        labels, embeddings = batch(size)
        embeddings = embeddings.astype("float32")
        of_matrix, found = step(labels, same(labels), embeddings)
        expected = [loss(labels, embeddings) for loss in losses]
        assert_equal(found, expected)
        assert_equal(of_matrix, expected[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have shape"):
        step(labels, same(labels)[:, :5], embeddings)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("class", same(LABELS)),
        ("pairs", same(LABELS).astype("float32")),
        ("multi_hot", np.eye(4, dtype="int64")[LABELS]),
    ],
)
def test_every_kind_of_labels_trains_in_a_plain_compile(kind, labels):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    loss = gsp.losses.SupConLoss(label_kind=kind)
    model.compile("sgd", loss=loss, run_eagerly=True)
    expected = gsp.losses.SupConLoss()(LABELS, model(vectors()))
    assert_equal(model.train_on_batch(vectors(), labels), expected)


@every_loss
def test_nan_labels_are_refused(case):
    labels, embeddings = np.array([0.0, np.nan, 0.0, 1.0]), vectors(4)
    loss = make(case)
    with pytest.raises(ValueError, match="`labels` must not be NaN. Received"):
        loss(labels, embeddings)
    with pytest.raises(ValueError, match="`labels` must not be NaN"):
        loss.between(labels, embeddings, LABELS[:4], embeddings)


def test_nan_labels_in_a_graph_give_nan_or_an_error():
    import tensorflow as tf

    losses = [make(case) for case in PAIR_LOSSES]
    embeddings, labels = vectors(4), np.array([0.0, np.nan, 0.0, 1.0])
    step = tf.function(lambda y: [loss(y, embeddings) for loss in losses])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not be NaN"):
        step(tf.constant(labels))
    compiled = tf.function(
        lambda y: gsp.losses.ContrastiveLoss()(y, embeddings), jit_compile=True
    )
    assert np.isnan(compiled(tf.constant(labels)))
    assert np.isfinite(compiled(tf.constant(np.zeros(4))))


def test_an_empty_batch_is_refused():
    loss, nothing = gsp.losses.ContrastiveLoss(), np.ones((0, 3))
    message = r"`embeddings` must have at least one row.*\(0, 3\)"
    with pytest.raises(ValueError, match=message):
        loss([], nothing)
    with pytest.raises(ValueError, match=message):
        loss.between([], nothing, [0], np.ones((1, 3)))
    with pytest.raises(ValueError, match="`similarities` must have at least"):
        gsp.losses.ProxyNCALoss()([], np.ones((0, 3, 1)))


@every_loss
def test_string_labels_are_refused(case):
    embeddings, loss = np.ones((2, 3), "float32"), make(case)
    for labels in (np.array(["a", "b"]), np.array(["a", 1], object)):
        with pytest.raises(TypeError, match="numbers, one per class"):
            loss(labels, embeddings)
        with pytest.raises(TypeError, match="numbers, one per class"):
            loss.between([0, 1], embeddings, labels, embeddings)


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        ({}, np.ones(3), "same length. Received: 3 and 7"),
        ({}, np.ones((7, 7), int), 'need `label_kind="pairs"` or'),
        ({}, np.ones((7, 3), bool), r"\(batch, batch\). Rec.*\(7, 3\)"),
        (
            {"label_kind": "pairs"},
            np.ones(7),
            r"references\). Received.*\(7,\)",
        ),
        ({"label_kind": "pairs"}, np.ones((7, 6)), r"shape \(7, 6\), with 7"),
        ({"label_kind": "multi_hot"}, LABELS, "num_classes"),
        ({"label_kind": "multi_hot"}, np.eye(6), "same length"),
    ],
)
def test_labels_that_do_not_fit_are_refused(arguments, labels, message):
    with pytest.raises(ValueError, match=message):
        gsp.losses.SupConLoss(**arguments)(labels, vectors())


def test_references_that_do_not_fit_are_refused():
    loss, square = gsp.losses.ContrastiveLoss(), np.ones((2, 3))
    with pytest.raises(ValueError, match=r"Received: shape \(2, 3, 1\)"):
        loss([0, 1], square[..., None])
    with pytest.raises(ValueError, match="`reference_labels` and"):
        loss.between([0, 1], square, [0], square)
    with pytest.raises(ValueError, match="same size. Received: 3 and 4"):
        loss.between([0, 1], square, [0, 1], np.ones((2, 4)))
    with pytest.raises(ValueError, match="`reference_labels` must be given"):
        loss.between([0, 1], square, None, square)
    for excluded in (np.ones((2, 3), bool), np.ones(2, bool)):
        with pytest.raises(ValueError, match="`excluded` must have shape"):
            loss.between([0, 1], square, [0, 1], square, excluded=excluded)
    loss = gsp.losses.SupConLoss(label_kind="multi_hot")
    with pytest.raises(ValueError, match="Received: 7 and 6 columns"):
        loss.between(np.eye(7), vectors(), np.eye(6), vectors(6))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"label_kind": "matrix"}, ValueError, "class, multi_hot, pairs"),
        ({"ignored_label": 0.5}, ValueError, "`ignored_label` must be an int"),
        ({"normalization": "l1"}, ValueError, "normalization='l1'"),
        ({"miner": "hard"}, ValueError, "`miner` must be one of.*'hard'"),
        ({"miner": 3}, TypeError, "`miner` must be.*miner=3"),
        ({"seed": 0.5}, TypeError, "`seed` must be"),
    ],
)
def test_arguments_of_every_pair_loss_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        gsp.losses.SupConLoss(**arguments)


def own_miner(embeddings, references, weights, seed):
    del embeddings, references, seed
    return gsp.ops.PairWeights(weights.positive, ops.zeros_like(weights[1]))


def test_a_function_of_the_user_chooses_the_pairs():
    labels, embeddings = batch()
    loss = gsp.losses.ContrastiveLoss(miner=own_miner)
    without = gsp.losses.ContrastiveLoss(negative_margin=0.0)
    assert_equal(loss(labels, embeddings), without(labels, embeddings))


def test_a_subclass_without_a_formula_names_its_method():
    with pytest.raises(NotImplementedError, match="anchor_terms"):
        gsp.losses.PairLoss()([0, 1], np.ones((2, 3)))
    with pytest.raises(NotImplementedError, match="list_terms"):
        gsp.losses.ListLoss()([0, 0, 1], np.eye(3))
