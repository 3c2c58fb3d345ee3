"""What holds for every pair loss: one table, every test."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import compiled, trains_compiled
from tests.gradients import central_differences, gradients
from tests.losses import pair_oracle
from tests.losses.pair_oracle import Pairs

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

# Margins that leave both active and idle pairs in the data below.
CASES = {
    "contrastive": (
        gsp.losses.ContrastiveLoss,
        pair_oracle.contrastive,
        {"positive_margin": 0.2, "negative_margin": 1.3},
    ),
    "cosine_contrastive": (
        gsp.losses.CosineContrastiveLoss,
        pair_oracle.cosine_contrastive,
        {"margin": 0.1},
    ),
    "triplet": (
        gsp.losses.TripletLoss,
        pair_oracle.triplet,
        {"margin": 0.1},
    ),
    "triplet_valid": (
        gsp.losses.TripletLoss,
        pair_oracle.triplet,
        {"margin": 0.3, "mean_over": "valid"},
    ),
    "multi_similarity": (
        gsp.losses.MultiSimilarityLoss,
        pair_oracle.multi_similarity,
        {"alpha": 3.0, "beta": 20.0, "base": 0.3},
    ),
    "multi_similarity_mined": (
        gsp.losses.MultiSimilarityLoss,
        pair_oracle.multi_similarity,
        {"mining_margin": 0.1},
    ),
    "supervised_contrastive": (
        gsp.losses.SupConLoss,
        pair_oracle.supervised_contrastive,
        {"temperature": 0.3},
    ),
    "ntxent": (gsp.losses.NTXentLoss, pair_oracle.ntxent, {"temperature": 0.3}),
    "circle": (
        gsp.losses.CircleLoss,
        pair_oracle.circle,
        {"margin": 0.3, "scale": 8.0},
    ),
    "lifted_structure": (
        gsp.losses.LiftedStructureLoss,
        pair_oracle.lifted_structure,
        {"positive_margin": 0.1, "negative_margin": 0.5},
    ),
    "n_pair": (gsp.losses.NPairLoss, pair_oracle.n_pair, {}),
    "margin": (
        gsp.losses.MarginLoss,
        pair_oracle.margin,
        {"margin": 0.1, "beta": 1.1},
    ),
    "potential_field": (
        gsp.losses.PotentialFieldLoss,
        pair_oracle.potential_field,
        {"radius": 1.0, "decay": 2.0},
    ),
    "smooth_ap": (
        gsp.losses.SmoothAPLoss,
        pair_oracle.smooth_ap,
        {"temperature": 0.2},
    ),
    "smooth_ap_without_query": (
        gsp.losses.SmoothAPLoss,
        pair_oracle.smooth_ap,
        {"temperature": 0.2, "counts_query": False},
    ),
    "recall_at_k": (
        gsp.losses.RecallAtKLoss,
        pair_oracle.recall_at_k,
        {"temperature": 0.2, "k": (1, 3)},
    ),
}
every_loss = pytest.mark.parametrize("case", CASES)
# The N-pair loss alone knows a first and a second sample of a class.
every_loss_without_order = pytest.mark.parametrize(
    "case", [case for case in CASES if case != "n_pair"]
)
# For what takes seconds and depends on the class, not on its options.
one_of_each = pytest.mark.parametrize(
    "case", ["contrastive", "cosine_contrastive", "triplet", "multi_similarity"]
)


def make(case, **settings):
    loss, _, arguments = CASES[case]
    return loss(**{"normalization": "l2", **arguments, **settings})


def oracle(case, pairs, at=None):
    """The loops; `at` are the pairs where the gradient is taken."""
    _, function, arguments = CASES[case]
    if case == "circle":  # Its weights have no gradient.
        arguments = {**arguments, "fixed": at}
    return function(pairs, **arguments)


def batch(size=10, classes=3, seed=0):
    """Labels of unequal counts, one class alone, embeddings of any length."""
    random = np.random.default_rng(seed)
    labels = np.append(np.arange(size - 1) % classes, classes)
    centers = random.normal(size=(classes + 1, 4))
    return labels, centers[labels] + 0.7 * random.normal(size=(size, 4))


def references(size=7, seed=1):
    labels, embeddings = batch(size, seed=seed)
    excluded = np.random.default_rng(seed).random((10, size)) < 0.3
    return labels, embeddings, excluded


@every_loss
@pytest.mark.parametrize("normalization", ["l2", "ball", None])
def test_value_in_float64(case, normalization, double_precision):
    labels, embeddings = batch()
    loss = make(case, normalization=normalization, dtype="float64")
    expected = oracle(
        case, Pairs(labels, embeddings, normalization=normalization)
    )
    assert expected > 0.0
    np.testing.assert_allclose(loss(labels, embeddings), expected, rtol=1e-10)


@every_loss
def test_value_against_references_in_float64(case, double_precision):
    labels, embeddings = batch()
    pairs = Pairs(labels, embeddings, *references())
    others, vectors, excluded = references()
    value = make(case).between(
        labels, embeddings, others, vectors, excluded=excluded
    )
    np.testing.assert_allclose(value, oracle(case, pairs), rtol=1e-10)


@every_loss
def test_gradient_is_that_of_the_loops(case, double_precision):
    labels, embeddings = batch()
    loss = make(case, dtype="float64")
    (found,) = gradients(lambda e: loss(labels, e), embeddings)
    (expected,) = central_differences(
        lambda e: oracle(case, Pairs(labels, e), Pairs(labels, embeddings)),
        embeddings,
    )
    # What central differences with a step of 1e-6 leave.
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=1e-8 * max(scale, 1.0))


@every_loss
def test_gradient_reaches_anchors_and_references(case, double_precision):
    labels, embeddings = batch()
    others, vectors, excluded = references()
    loss = make(case)
    found = gradients(
        lambda e, r: loss.between(labels, e, others, r, excluded=excluded),
        embeddings,
        vectors,
    )
    expected = central_differences(
        lambda e, r: oracle(
            case,
            Pairs(labels, e, others, r, excluded),
            Pairs(labels, embeddings, others, vectors, excluded),
        ),
        embeddings,
        vectors,
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@every_loss
def test_compiled_float32_value_and_gradient(case):
    labels, embeddings = batch(24, classes=5)
    embeddings = embeddings.astype("float32")
    loss = make(case)

    function = compiled(lambda e: loss(labels, e))
    exact = oracle(case, Pairs(labels, embeddings))
    np.testing.assert_allclose(function(embeddings), exact, rtol=1e-5)
    (found,) = gradients(function, embeddings)
    exact = embeddings.astype("float64")
    (expected,) = central_differences(
        lambda e: oracle(case, Pairs(labels, e), Pairs(labels, exact)), exact
    )
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=1e-5 * scale)


@every_loss
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_embeddings_are_compared_in_float32(case, dtype):
    labels, embeddings = batch()
    half = keras.ops.cast(embeddings, dtype)
    rounded = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))
    value = make(case)(labels, half)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    exact = oracle(case, Pairs(labels, rounded))
    np.testing.assert_allclose(value, exact, rtol=1e-5)
    between = make(case).between(labels, half, labels, half)
    assert keras.backend.standardize_dtype(between.dtype) == "float32"


@every_loss_without_order
def test_batch_is_its_own_references_without_the_diagonal(case):
    labels, embeddings = batch()
    loss = make(case)
    value = loss.between(
        labels, embeddings, labels, embeddings, excluded=np.eye(10, dtype=bool)
    )
    np.testing.assert_allclose(loss(labels, embeddings), value, rtol=1e-6)


@every_loss
def test_excluded_references_leave_no_trace(case):
    labels, embeddings = batch()
    others, vectors, _ = references()
    excluded = np.zeros((10, 7), bool)
    excluded[:, 4:] = True
    loss = make(case)
    value = loss.between(labels, embeddings, others, vectors, excluded=excluded)
    alone = loss.between(labels, embeddings, others[:4], vectors[:4])
    np.testing.assert_allclose(value, alone, rtol=1e-6)


@every_loss
@pytest.mark.parametrize(
    "form",
    [
        lambda labels: labels.astype("int32"),
        lambda labels: labels.astype("float32"),
        lambda labels: labels[:, None],
        lambda labels: labels.tolist(),
        lambda labels: -labels,
    ],
    ids=["int32", "float32", "column", "list", "negative"],
)
def test_any_numbers_are_labels(case, form):
    labels, embeddings = batch()
    loss = make(case)
    np.testing.assert_array_equal(
        loss(form(labels), embeddings), loss(labels, embeddings)
    )


@pytest.mark.skipif(not ON_TENSORFLOW, reason="JAX has no 64-bit integers")
@every_loss
def test_eleven_digit_labels_do_not_collide(case):
    labels, embeddings = batch()
    large = labels.astype("int64") + 98_765_432_100
    loss = make(case)
    expected = loss(labels, embeddings)
    np.testing.assert_array_equal(loss(large, embeddings), expected)
    value = loss.between(large, embeddings, large, embeddings)
    np.testing.assert_array_equal(
        value, loss.between(labels, embeddings, labels, embeddings)
    )


@every_loss
@pytest.mark.parametrize(
    "labels",
    [[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 1, 1]],
    ids=["no positive", "one class", "two classes"],
)
def test_value_and_gradient_are_always_finite(case, labels):
    spread = np.random.default_rng(0).normal(size=(4, 3))
    loss = make(case)
    for embeddings in (
        spread,
        np.repeat(spread[:1], 4, axis=0),
        np.zeros((4, 3)),
        spread[:1] * np.array([1.0, -1.0, 1.0, -1.0])[:, None],
    ):
        embeddings = embeddings.astype("float32")
        assert np.isfinite(loss(labels, embeddings))
        (gradient,) = gradients(lambda e: loss(labels, e), embeddings)
        assert np.all(np.isfinite(gradient))


@every_loss
def test_a_single_embedding_costs_nothing(case):
    embeddings = np.ones((1, 4), "float32")
    loss = make(case)
    np.testing.assert_array_equal(loss([3], embeddings), 0.0)
    (gradient,) = gradients(lambda e: loss([3], e), embeddings)
    np.testing.assert_array_equal(gradient, 0.0)


@every_loss_without_order
def test_order_of_the_batch_is_irrelevant(case):
    labels, embeddings = batch()
    order = np.random.default_rng(3).permutation(10)
    loss = make(case)
    np.testing.assert_allclose(
        loss(labels[order], embeddings[order]),
        loss(labels, embeddings),
        rtol=1e-5,
    )


@every_loss
def test_sample_weights_multiply_the_terms_of_their_anchors(case):
    labels, embeddings = batch()
    weights = np.linspace(0.0, 2.0, 10)
    terms = make(case, reduction=None)(labels, embeddings)
    assert terms.shape == (10,)
    value = make(case)(labels, embeddings, sample_weight=weights)
    expected = np.mean(keras.ops.convert_to_numpy(terms) * weights)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@one_of_each
@pytest.mark.parametrize(
    ("policy", "jit_compile"),
    [("float32", True), ("mixed_bfloat16", False)],
)
def test_fit_lowers_the_loss(case, policy, jit_compile):
    keras.config.set_dtype_policy(policy)
    labels, images = batch(40)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=make(case),
        jit_compile=trains_compiled(jit_compile),
    )
    history = model.fit(
        images,
        labels,
        sample_weight=np.ones(40),
        batch_size=40,
        epochs=12,
        verbose=0,
    ).history["loss"]
    assert np.all(np.isfinite(history))
    assert history[-1] < history[0]


@one_of_each
def test_float16_training_stays_finite(case):
    keras.config.set_dtype_policy("mixed_float16")
    labels, images = batch(16)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", loss=make(case))
    history = model.fit(images, labels, epochs=3, verbose=0).history["loss"]
    assert np.all(np.isfinite(history))


@one_of_each
def test_keras_file_keeps_the_loss(case, tmp_path):
    labels, images = batch()
    loss = make(case, normalization="ball")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", loss=loss)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is type(loss)
    assert loaded.loss.get_config() == loss.get_config()
    np.testing.assert_array_equal(
        loaded.loss(labels, images), loss(labels, images)
    )


@pytest.mark.skipif(not ON_TENSORFLOW, reason="tf.function is TensorFlow's")
@one_of_each
def test_batch_of_unknown_size_in_a_graph(case):
    import tensorflow as tf

    loss = make(case)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, None], tf.float32),
        ]
    )
    def step(labels, embeddings):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            value = loss(labels, embeddings)
        return value, tape.gradient(value, embeddings)

    for size in (10, 6):
        labels, embeddings = batch(size)
        embeddings = embeddings.astype("float32")
        value, gradient = step(labels, embeddings)
        eager = loss(labels, embeddings)
        np.testing.assert_allclose(value, eager, rtol=1e-5)
        assert gradient.shape == (size, 4)


@every_loss
@pytest.mark.parametrize(
    "labels",
    [np.array(["cat", "dog"]), ["cat", "dog"], np.array(["cat", 1], object)],
    ids=["array", "list", "objects"],
)
def test_string_labels_are_refused(case, labels):
    embeddings = np.ones((2, 3), "float32")
    loss = make(case)
    with pytest.raises(TypeError, match="numbers, one per class"):
        loss(labels, embeddings)
    with pytest.raises(TypeError, match="numbers, one per class"):
        loss.between([0, 1], embeddings, labels, embeddings)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="strings are TensorFlow's")
def test_string_tensors_are_refused_in_fit():
    import tensorflow as tf

    data = tf.data.Dataset.from_tensors((tf.ones((2, 3)), ["cat", "dog"]))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile("adam", loss=make("contrastive"))
    with pytest.raises(TypeError, match="numbers, one per class"):
        model.fit(data, verbose=0)


def test_lengths_that_differ_are_refused():
    loss = gsp.losses.ContrastiveLoss()
    with pytest.raises(ValueError, match="same length. Received: 3 and 2"):
        loss([0, 1, 2], np.ones((2, 3)))
    with pytest.raises(ValueError, match="`reference_labels` and"):
        loss.between([0, 1], np.ones((2, 3)), [0], np.ones((2, 3)))


def test_wrong_shapes_are_refused():
    loss = gsp.losses.ContrastiveLoss()
    square = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"Received: shape \(2, 3, 1\)"):
        loss([0, 1], square[..., None])
    with pytest.raises(ValueError, match="same size. Received: 3 and 4"):
        loss.between([0, 1], square, [0, 1], np.ones((2, 4)))
    with pytest.raises(ValueError, match="`excluded` must have shape"):
        loss.between(
            [0, 1], square, [0, 1], square, excluded=np.ones((2, 3), bool)
        )


def test_unknown_normalization_is_refused():
    with pytest.raises(ValueError, match="normalization='l1'"):
        gsp.losses.ContrastiveLoss(normalization="l1")


def test_a_subclass_without_a_formula_says_so():
    with pytest.raises(NotImplementedError, match="anchor_terms"):
        gsp.losses.PairLoss()([0, 1], np.ones((2, 3)))
