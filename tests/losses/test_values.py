"""Every loss and its gradient against the loops of the tables."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import References, StepParts
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.losses.proxy_similarity import ProxyLoss
from tests.compiled import compiled, not_on_jax, on_tensorflow, slow_on
from tests.gradients import central_differences, gradients
from tests.losses import pair_oracle
from tests.losses.pair_oracle import PAIR_LOSSES, references
from tests.losses.proxy_oracle import PROXY_LOSSES
from tests.losses.tables import CASES, every_case, every_pair_case, make, table


def differences(case, labels, inputs):
    return central_differences(
        lambda x: table(case).oracle(case, labels, x, fixed=(labels, inputs)),
        inputs,
    )[0]


def test_every_exported_loss_has_a_row():
    kinds = {getattr(gsp.losses, name) for name in gsp.losses.__all__}
    for base, rows in ((PairLoss, PAIR_LOSSES), (ProxyLoss, PROXY_LOSSES)):
        found = {kind for kind in kinds if issubclass(kind, base)}
        assert found == {row[0] for row in rows.values()}


@pytest.fixture(scope="module")
def compiled_losses():
    """Value and gradient of each loss in float32, compiled together."""
    batches = [table(case).batch() for case in CASES]
    losses = [make(case) for case in CASES]

    def values(*inputs):
        rows = zip(losses, batches, inputs, strict=True)
        return keras.ops.stack([loss(y, x) for loss, (y, _), x in rows])

    arrays = [inputs.astype("float32") for _, inputs in batches]
    total = compiled(lambda *inputs: keras.ops.sum(values(*inputs)))
    found = compiled(values)(*arrays), gradients(total, *arrays)
    return dict(zip(CASES, zip(*found, strict=True), strict=True))


@slow_on("tensorflow")  # On JAX before every commit.
@every_case
def test_compiled_in_float32(case, compiled_losses):
    labels, inputs = table(case).batch()
    inputs = inputs.astype("float32").astype("float64")
    value, gradient = compiled_losses[case]
    expected = table(case).oracle(case, labels, inputs, fixed=(labels, inputs))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    slopes = differences(case, labels, inputs)
    scale = np.abs(slopes).max()
    np.testing.assert_allclose(gradient, slopes, atol=1e-5 * scale)


@on_tensorflow
@every_case
def test_in_float64(case):
    """Also of one and of three proxies a class, and of every normalization."""
    loss = make(case, dtype="float64")
    for given in ((), (1,), (3,)) if case in PROXY_LOSSES else ((),):
        labels, inputs = table(case).batch(*given)
        expected = table(case).oracle(case, labels, inputs)
        assert expected > 0.0
        np.testing.assert_allclose(loss(labels, inputs), expected, rtol=1e-10)
        (found,) = gradients(lambda x, y=labels: loss(y, x), inputs)
        slopes = differences(case, labels, inputs)
        # What central differences with a step of 1e-6 leave.
        scale = max(np.abs(slopes).max(), 1.0)
        np.testing.assert_allclose(found, slopes, atol=1e-8 * scale)
    for kind in ("ball", None) if case in PAIR_LOSSES else ():
        loss = make(case, normalization=kind, dtype="float64")
        expected = pair_oracle.oracle(case, labels, inputs, normalization=kind)
        np.testing.assert_allclose(loss(labels, inputs), expected, rtol=1e-10)


@not_on_jax
@every_pair_case
def test_between_batch_and_references_in_float64(case):
    labels, embeddings = pair_oracle.batch()
    others, vectors, excluded = references()
    loss = make(case)
    given = labels, embeddings, others, vectors, excluded

    def found(e, r):
        return loss.between(labels, e, others, r, excluded=excluded)

    def expected(e, r):
        pairs = labels, e, others, r, excluded
        return pair_oracle.oracle(case, *pairs, fixed=given)

    inputs = embeddings, vectors
    np.testing.assert_allclose(found(*inputs), expected(*inputs), rtol=1e-10)
    slopes = central_differences(expected, *inputs)
    for one, other in zip(gradients(found, *inputs), slopes, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@not_on_jax
@every_case
def test_half_precision_is_computed_in_float32(case):
    loss, (labels, inputs) = make(case), table(case).batch()
    for dtype in ("float16", "bfloat16"):
        half = keras.ops.cast(inputs, dtype)
        exact = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))
        found = [loss(labels, half)]
        expected = table(case).oracle(case, labels, exact)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5)
        if case in PAIR_LOSSES:
            found.append(loss.between(labels, half, labels, half))
        for value in found:
            assert keras.backend.standardize_dtype(value.dtype) == "float32"


def test_labels_without_proxies_are_refused_or_nan():
    proxies = gsp.layers.ClassProxies(3)
    embeddings = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    proxies.build((None, 8))
    known = References(proxies.proxy_labels, proxies.flat_proxies())

    def value(loss, labels, embeddings):
        labels = keras.ops.convert_to_tensor(labels)
        parts = StepParts(
            labels, embeddings, proxies=proxies, references=(known,)
        )
        return loss.training_loss(parts)

    proxy = gsp.losses.ProxyNCALoss()
    for loss in (proxy, gsp.losses.MatryoshkaLoss(proxy, sizes=(8, 4))):
        assert np.isfinite(float(value(loss, [0, 0, 1, 2], embeddings)))
        with pytest.raises(ValueError, match=r"whole numbers in \[0, 3\)"):
            value(loss, [1, 1, 2, 3], embeddings)
        if keras.backend.backend() != "torch":  # XLA cannot raise.
            traced = compiled(lambda x, loss=loss: value(loss, x, embeddings))
            labels = keras.ops.convert_to_tensor([1, 1, 2, 3])
            assert np.isnan(float(traced(labels)))
