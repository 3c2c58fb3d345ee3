"""Whose pair is positive: classes, several of them, a matrix, or nobody's."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import compiled

LOSSES = {
    "contrastive": gsp.losses.ContrastiveLoss,
    "cosine_contrastive": gsp.losses.CosineContrastiveLoss,
    "triplet": gsp.losses.TripletLoss,
    "multi_similarity": gsp.losses.MultiSimilarityLoss,
    "supervised_contrastive": gsp.losses.SupConLoss,
    "ntxent": gsp.losses.NTXentLoss,
    "circle": gsp.losses.CircleLoss,
    "margin": gsp.losses.MarginLoss,
    "potential_field": gsp.losses.PotentialFieldLoss,
    "lifted_structure": gsp.losses.LiftedStructureLoss,
    "n_pair": gsp.losses.NPairLoss,
    "smooth_ap": gsp.losses.SmoothAPLoss,
    "recall_at_k": gsp.losses.RecallAtKLoss,
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
# What a pair that counts twice means is the same for these: the pair twice.
# Of the others one looks at negatives of both ends, one at one positive of an
# anchor, and two count a reference once in every rank.
OF_PAIRS = [
    name
    for name in LOSSES
    if name not in ("lifted_structure", "n_pair", "smooth_ap", "recall_at_k")
]
every_sum = pytest.mark.parametrize(
    "loss", [LOSSES[name] for name in OF_PAIRS], ids=OF_PAIRS
)
LABELS = np.array([0, 1, 0, 2, 1, 0, 3])


def vectors(size=7, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(size, 4)).astype("float32")


def same(labels, others=None):
    others = labels if others is None else others
    return labels[:, None] == others[None, :]


@every_loss
def test_a_boolean_matrix_says_what_labels_say(loss):
    loss, embeddings = loss(), vectors()
    expected = loss(LABELS, embeddings)
    assert expected > 0.0
    np.testing.assert_allclose(
        loss(same(LABELS), embeddings), expected, rtol=1e-6
    )
    np.testing.assert_allclose(
        np.mean(loss.call(same(LABELS), embeddings)), expected, rtol=1e-6
    )


@every_loss
def test_a_matrix_between_batch_and_references(loss):
    loss, others = loss(), np.array([1, 0, 2, 5])
    references = vectors(4, seed=1)
    expected = loss.between(LABELS, vectors(), others, references)
    found = loss.between(same(LABELS, others), vectors(), None, references)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@every_loss
def test_multi_hot_rows_of_one_class_are_class_labels(loss):
    expected = loss()(LABELS, vectors())
    one_hot = np.eye(9, dtype="float32")[LABELS]
    found = loss(label_kind="multi_hot")(one_hot, vectors())
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found = loss(label_kind="multi_hot").between(
        one_hot, vectors(), one_hot[:4], vectors(4, seed=1)
    )
    expected = loss().between(LABELS, vectors(), LABELS[:4], vectors(4, seed=1))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_samples_that_share_a_class_are_positive():
    several = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
    is_positive = several @ several.T > 0
    found = gsp.losses.SupConLoss(label_kind="multi_hot")(several, vectors(4))
    expected = gsp.losses.SupConLoss()(is_positive, vectors(4))
    np.testing.assert_array_equal(found, expected)


@every_loss
def test_an_ignored_label_leaves_no_trace(loss):
    labels = np.array([0, 1, 0, -1, 1, -1, 2])
    is_kept = labels >= 0
    loss_without = loss(ignored_label=-1)
    terms = loss(ignored_label=-1, reduction=None)(labels, vectors())
    np.testing.assert_array_equal(np.asarray(terms)[~is_kept], 0.0)
    alone = loss()(labels[is_kept], vectors()[is_kept])
    np.testing.assert_allclose(
        loss_without(labels, vectors()), alone, rtol=1e-5
    )
    # Against references all anchors but the ignored ones count.
    found = loss_without.between(labels, vectors(), labels, vectors(7, 1))
    expected = loss().between(
        labels[is_kept],
        vectors()[is_kept],
        labels[is_kept],
        vectors(7, 1)[is_kept],
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@every_sum
def test_a_pair_that_counts_twice_is_the_pair_twice(loss):
    random = np.random.default_rng(0)
    weights = random.choice([-1.0, 0.0, 1.0, 2.0], size=(7, 5))
    loss, references = loss(label_kind="pairs"), vectors(5, seed=1)
    again = np.where(weights == 2.0, 1.0, -1.0)
    twice = np.concatenate([np.minimum(weights, 1.0), again], axis=1)
    np.testing.assert_allclose(
        loss.between(weights, vectors(), None, references),
        loss.between(twice, vectors(), None, np.tile(references, (2, 1))),
        rtol=1e-5,
    )


@pytest.mark.parametrize("loss", ["smooth_ap", "recall_at_k"])
def test_weights_of_one_are_booleans_in_a_list(loss):
    weights = same(LABELS).astype("float64")
    expected = LOSSES[loss]()(LABELS, vectors())
    pairs = LOSSES[loss](label_kind="pairs")
    np.testing.assert_allclose(pairs(weights, vectors()), expected, rtol=1e-6)
    weights[0, 2] = 3.0
    assert abs(float(pairs(weights, vectors()) - expected)) > 1e-4


@every_loss
def test_pairs_below_zero_are_left_out(loss):
    weights = same(LABELS).astype("float32")
    weights[:, 3:] = np.nan
    weights[:, 5:] = -1.0
    found = loss(label_kind="pairs").between(
        weights, vectors(), None, vectors(7, 1)
    )
    expected = loss().between(LABELS, vectors(), LABELS[:3], vectors(7, 1)[:3])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("class", same(LABELS)),
        ("pairs", same(LABELS).astype("float32")),
        ("multi_hot", np.eye(4, dtype="int64")[LABELS]),
    ],
)
def test_every_kind_trains_in_a_plain_compile(kind, labels):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", loss=gsp.losses.SupConLoss(label_kind=kind))
    found = model.evaluate(vectors(), labels, batch_size=7, verbose=0)
    expected = gsp.losses.SupConLoss()(LABELS, model(vectors()))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    model.fit(vectors(), labels, batch_size=7, verbose=0)


def test_kinds_compile():
    loss = gsp.losses.SupConLoss(label_kind="pairs", ignored_label=3)
    weights = same(LABELS).astype("float32")
    function = compiled(lambda w, e: loss(w, e))
    np.testing.assert_allclose(
        function(weights, vectors()), loss(weights, vectors()), rtol=1e-5
    )


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="graphs are TensorFlow's"
)
def test_a_matrix_of_unknown_size_is_checked_when_the_graph_runs():
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.bool),
            tf.TensorSpec([None, 4], tf.float32),
        ]
    )
    def step(is_positive, embeddings):
        return gsp.losses.SupConLoss()(is_positive, embeddings)

    expected = gsp.losses.SupConLoss()(LABELS, vectors())
    np.testing.assert_allclose(
        step(same(LABELS), vectors()), expected, rtol=1e-5
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have shape"):
        step(same(LABELS)[:, :5], vectors())


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
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
def test_shapes_that_do_not_fit_are_refused(arguments, labels, message):
    with pytest.raises(ValueError, match=message):
        gsp.losses.SupConLoss(**arguments)(labels, vectors())


def test_labels_of_references_must_fit():
    loss = gsp.losses.SupConLoss()
    with pytest.raises(ValueError, match="`reference_labels` must be given"):
        loss.between(LABELS, vectors(), None, vectors())
    loss = gsp.losses.SupConLoss(label_kind="multi_hot")
    with pytest.raises(ValueError, match="Received: 7 and 6 columns"):
        loss.between(np.eye(7), vectors(), np.eye(6), vectors(6))


def test_arguments_out_of_range_are_refused():
    with pytest.raises(ValueError, match="one of class, multi_hot, pairs"):
        gsp.losses.SupConLoss(label_kind="matrix")
    with pytest.raises(ValueError, match="`ignored_label` must be an integer"):
        gsp.losses.SupConLoss(ignored_label=0.5)
