"""What holds for every proxy loss: one table, every test."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import compiled, trains_compiled
from tests.gradients import central_differences, gradients
from tests.losses import proxy_oracle

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

CASES = {
    "proxy_nca": (gsp.losses.ProxyNCALoss, proxy_oracle.proxy_nca),
    "proxy_anchor": (gsp.losses.ProxyAnchorLoss, proxy_oracle.proxy_anchor),
    "soft_triple": (gsp.losses.SoftTripleLoss, proxy_oracle.soft_triple),
    "arcface": (gsp.losses.ArcFaceLoss, proxy_oracle.arcface),
    "cosface": (gsp.losses.CosFaceLoss, proxy_oracle.cosface),
    "normalized_softmax": (
        gsp.losses.NormalizedSoftmaxLoss,
        proxy_oracle.normalized_softmax,
    ),
}
every_loss = pytest.mark.parametrize("case", CASES)
one_or_three = pytest.mark.parametrize("per_class", [1, 3])

NUM_CLASSES = 5


def make(case, **settings):
    return CASES[case][0](**settings)


def oracle(case, labels, similarities):
    return CASES[case][1](labels, np.asarray(similarities, "float64"))


def batch(per_class=2, size=8):
    """Classes 0 to 3 in unequal numbers; class 4 only has proxies."""
    random = np.random.default_rng(0)
    similarities = random.uniform(-1, 1, (size, NUM_CLASSES, per_class))
    return np.arange(size) % 7 % 4, similarities


@every_loss
@one_or_three
def test_value_in_float64(case, per_class, double_precision):
    labels, similarities = batch(per_class)
    value = make(case, dtype="float64")(labels, similarities)
    expected = oracle(case, labels, similarities)
    np.testing.assert_allclose(value, expected, rtol=1e-10)


@every_loss
@one_or_three
def test_gradient_is_that_of_the_loops(case, per_class, double_precision):
    labels, similarities = batch(per_class)
    loss = make(case, dtype="float64")
    (found,) = gradients(lambda s: loss(labels, s), similarities)
    (expected,) = central_differences(
        lambda s: oracle(case, labels, s), similarities
    )
    # What central differences with a step of 1e-6 leave.
    np.testing.assert_allclose(found, expected, atol=1e-7)


@every_loss
def test_compiled_float32_value_and_gradient(case):
    labels, similarities = batch()
    similarities = similarities.astype("float32")
    loss = make(case)
    function = compiled(lambda s: loss(labels, s))
    expected = oracle(case, labels, similarities)
    np.testing.assert_allclose(function(similarities), expected, rtol=1e-5)
    (found,) = gradients(function, similarities)
    (expected,) = central_differences(
        lambda s: oracle(case, labels, s), similarities.astype("float64")
    )
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=1e-5 * scale)


@every_loss
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_similarities_are_added_in_float32(case, dtype):
    labels, similarities = batch()
    half = keras.ops.cast(similarities, dtype)
    rounded = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))
    value = make(case)(labels, half)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    np.testing.assert_allclose(value, oracle(case, labels, rounded), rtol=1e-5)


@every_loss
@pytest.mark.parametrize(
    "labels",
    [[0, 1, 2, 3], [2, 2, 2, 2], [4, 4, 0, 0]],
    ids=["no positive", "one class", "two classes"],
)
def test_value_and_gradient_are_always_finite(case, labels):
    spread = batch()[1][:4]
    loss = make(case)
    for similarities in (
        spread,
        np.zeros_like(spread),
        np.ones_like(spread),
        np.sign(spread),
    ):
        similarities = similarities.astype("float32")
        expected = oracle(case, labels, similarities)
        np.testing.assert_allclose(
            loss(labels, similarities), expected, rtol=1e-5, atol=1e-5
        )
        (gradient,) = gradients(lambda s: loss(labels, s), similarities)
        assert np.all(np.isfinite(gradient))


@every_loss
def test_one_sample_and_one_class(case):
    similarities = np.full((1, 1, 2), 0.3, "float32")
    loss = make(case)
    expected = oracle(case, [0], similarities)
    np.testing.assert_allclose(loss([0], similarities), expected, atol=1e-6)
    (gradient,) = gradients(lambda s: loss([0], s), similarities)
    assert np.all(np.isfinite(gradient))


@every_loss
def test_any_numbers_are_labels(case):
    labels, similarities = batch()
    loss = make(case)
    expected = loss(labels, similarities)
    for form in (
        labels.astype("float32"),
        labels.astype("int32")[:, None],
        labels.tolist(),
    ):
        np.testing.assert_array_equal(loss(form, similarities), expected)


@every_loss
def test_sample_weights_multiply_the_terms_of_their_samples(case):
    labels, similarities = batch()
    weights = np.linspace(0.0, 2.0, 8)
    terms = make(case, reduction=None)(labels, similarities)
    assert terms.shape == (8,)
    value = make(case)(labels, similarities, sample_weight=weights)
    expected = np.mean(keras.ops.convert_to_numpy(terms) * weights)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@every_loss
@pytest.mark.parametrize(
    ("policy", "jit_compile"),
    [("mixed_bfloat16", True), ("mixed_float16", False)],
)
def test_proxies_move_and_the_loss_falls_in_fit(case, policy, jit_compile):
    keras.config.set_dtype_policy(policy)
    labels = np.arange(24) % NUM_CLASSES
    images = np.random.default_rng(0).normal(size=(24, 4)) + labels[:, None]
    proxies = gsp.layers.ClassProxies(NUM_CLASSES, proxies_per_class=2)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(6), proxies]
    )
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=make(case),
        jit_compile=trains_compiled(jit_compile),
    )
    before = keras.ops.convert_to_numpy(proxies.proxies)
    history = model.fit(
        images,
        labels,
        sample_weight=np.ones(24),
        batch_size=24,
        epochs=15,
        verbose=0,
    ).history["loss"]
    after = keras.ops.convert_to_numpy(proxies.proxies)
    assert np.all(np.abs(after - before).max(axis=-1) > 1e-3)
    assert history[-1] < history[0]


@every_loss
def test_keras_file_keeps_proxies_and_loss(case, tmp_path):
    labels = np.arange(8) % NUM_CLASSES
    images = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    proxies = gsp.layers.ClassProxies(
        NUM_CLASSES,
        proxies_per_class=2,
        proxies_regularizer=gsp.losses.CenterRegularizer(0.3),
    )
    model = keras.Sequential([keras.Input((4,)), proxies])
    model.compile("adam", loss=make(case))
    model.fit(images, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == model.loss.get_config()
    assert loaded.layers[-1].get_config() == proxies.get_config()
    np.testing.assert_allclose(
        loaded.evaluate(images, labels, verbose=0),
        model.evaluate(images, labels, verbose=0),
        rtol=1e-6,
    )


@pytest.mark.parametrize("wrong", [-1, NUM_CLASSES, 98_765_432_100])
def test_labels_out_of_range_are_refused(wrong):
    if wrong > 2**31 and not ON_TENSORFLOW:
        pytest.skip("JAX has no 64-bit integers")
    labels, similarities = batch()
    labels[3] = wrong
    with pytest.raises(ValueError, match=rf"\[0, 5\).*{wrong}"):
        gsp.losses.ProxyNCALoss()(labels, similarities)


def test_labels_out_of_range_in_a_compiled_step_give_nan():
    labels, similarities = batch()
    loss = gsp.losses.ProxyNCALoss()
    function = compiled(lambda y, s: loss(y, s))
    assert np.isfinite(function(labels, similarities))
    labels[3] = NUM_CLASSES
    assert np.isnan(function(labels, similarities))


@every_loss
def test_string_labels_are_refused(case):
    with pytest.raises(TypeError, match="numbers, one per class"):
        make(case)(np.array(["cat"] * 8), batch()[1])


def test_wrong_shapes_are_refused():
    labels, similarities = batch()
    loss = gsp.losses.ProxyNCALoss()
    with pytest.raises(ValueError, match=r"Received: shape \(8, 5\)"):
        loss(labels, similarities[..., 0])
    with pytest.raises(ValueError, match="`labels` and `similarities`"):
        loss(labels[:3], similarities)


def test_a_subclass_without_a_formula_says_so():
    with pytest.raises(NotImplementedError, match="sample_terms"):
        gsp.losses.ProxyLoss()(*batch())


@every_loss
@one_or_three
@pytest.mark.parametrize("kept", [[0, 2, 3, 6], range(8), []])
def test_loss_inside_is_that_of_these_samples_alone(case, per_class, kept):
    labels, _ = batch()
    proxies = gsp.layers.ClassProxies(NUM_CLASSES, proxies_per_class=per_class)
    embeddings = np.random.default_rng(3).normal(size=(8, 6))
    is_inside = np.isin(np.arange(8), kept)
    parts = gsp.losses.StepParts(labels, embeddings, proxies=proxies)
    found = float(make(case).inside_loss(parts, is_inside))
    expected = 0.0
    if len(kept):
        similarities = proxies(embeddings[is_inside])
        expected = float(make(case)(labels[is_inside], similarities))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
