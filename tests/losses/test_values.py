"""Every loss and its gradient against the loops of the tables."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import compiled
from tests.gradients import central_differences, gradients
from tests.losses import pair_oracle, proxy_oracle
from tests.losses.pair_oracle import PAIR_LOSSES, Pairs, references
from tests.losses.proxy_oracle import PROXY_LOSSES

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
on_tensorflow = pytest.mark.skipif(
    not ON_TENSORFLOW, reason="JAX runs the compiled test"
)
every_pair_loss = pytest.mark.parametrize("case", PAIR_LOSSES)
every_proxy_loss = pytest.mark.parametrize("case", PROXY_LOSSES)


def test_every_exported_loss_has_a_row():
    bases = {
        gsp.losses.PairLoss: PAIR_LOSSES,
        gsp.losses.ProxyLoss: PROXY_LOSSES,
    }
    for base, table in bases.items():
        kinds = {getattr(gsp.losses, name) for name in gsp.losses.__all__}
        found = {kind for kind in kinds if issubclass(kind, base)}
        abstract = {base, gsp.losses.ListLoss}
        assert found - abstract == {row[0] for row in table.values()}


@pytest.fixture(scope="module")
def compiled_losses():
    """Values and gradients of all losses in float32, compiled together."""
    labels, embeddings = pair_oracle.batch()
    proxy_labels, similarities = proxy_oracle.batch()
    embeddings = embeddings.astype("float32")
    similarities = similarities.astype("float32")
    pair_losses = {case: pair_oracle.make(case) for case in PAIR_LOSSES}
    proxy_losses = {case: proxy_oracle.make(case) for case in PROXY_LOSSES}

    # Each loss has its own slice of the inputs and so its own gradient.
    def values(embeddings, similarities):
        rows = [
            loss(labels, embeddings[i])
            for i, loss in enumerate(pair_losses.values())
        ]
        rows += [
            loss(proxy_labels, similarities[i])
            for i, loss in enumerate(proxy_losses.values())
        ]
        return keras.ops.stack(rows)

    inputs = (
        np.stack([embeddings] * len(pair_losses)),
        np.stack([similarities] * len(proxy_losses)),
    )
    found, slopes = value_and_gradients(values, *inputs)
    names = [*pair_losses, *proxy_losses]
    slopes = [*slopes[0], *slopes[1]]
    return {
        name: (value, slope)
        for name, value, slope in zip(names, found, slopes, strict=True)
    }


def value_and_gradients(function, *arrays):
    """The vector of values, and the gradient of its sum."""
    if not ON_TENSORFLOW:
        import jax

        def total(*arrays):
            found = function(*arrays)
            return found.sum(), found

        both = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)
        (_, found), slopes = jax.jit(both)(*arrays)
        return found, slopes
    import tensorflow as tf

    def both(*tensors):
        with tf.GradientTape() as tape:
            for tensor in tensors:
                tape.watch(tensor)
            found = function(*tensors)
        return found, tape.gradient(found, tensors)

    return compiled(both)(*(tf.constant(array) for array in arrays))


def assert_close_to(expected, slopes, found):
    value, gradient = found
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    scale = np.abs(slopes).max()
    np.testing.assert_allclose(gradient, slopes, atol=1e-5 * scale)


@every_pair_loss
def test_a_pair_loss_compiled_in_float32(case, compiled_losses):
    labels, embeddings = pair_oracle.batch()
    embeddings = embeddings.astype("float32").astype("float64")
    at = Pairs(labels, embeddings)
    (slopes,) = central_differences(
        lambda e: pair_oracle.oracle(case, Pairs(labels, e), at), embeddings
    )
    expected = pair_oracle.oracle(case, at)
    assert_close_to(expected, slopes, compiled_losses[case])


@every_proxy_loss
def test_a_proxy_loss_compiled_in_float32(case, compiled_losses):
    labels, similarities = proxy_oracle.batch()
    similarities = similarities.astype("float32").astype("float64")
    (slopes,) = central_differences(
        lambda s: proxy_oracle.oracle(case, labels, s), similarities
    )
    expected = proxy_oracle.oracle(case, labels, similarities)
    assert_close_to(expected, slopes, compiled_losses[case])


@on_tensorflow
@every_pair_loss
def test_a_pair_loss_in_float64(case):
    labels, embeddings = pair_oracle.batch()
    for normalization in ("l2", "ball", None):
        loss = pair_oracle.make(
            case, normalization=normalization, dtype="float64"
        )
        pairs = Pairs(labels, embeddings, normalization=normalization)
        expected = pair_oracle.oracle(case, pairs)
        assert expected > 0.0
        np.testing.assert_allclose(
            loss(labels, embeddings), expected, rtol=1e-10
        )
        (found,) = gradients(lambda e, f=loss: f(labels, e), embeddings)
        if normalization == "l2":
            (slopes,) = central_differences(
                lambda e, at=pairs: pair_oracle.oracle(
                    case, Pairs(labels, e), at
                ),
                embeddings,
            )
            # What central differences with a step of 1e-6 leave.
            scale = max(np.abs(slopes).max(), 1.0)
            np.testing.assert_allclose(found, slopes, atol=1e-8 * scale)


@on_tensorflow
@every_pair_loss
def test_a_pair_loss_between_batch_and_references_in_float64(case):
    labels, embeddings = pair_oracle.batch()
    others, vectors, excluded = references()
    loss = pair_oracle.make(case)
    at = Pairs(labels, embeddings, others, vectors, excluded)
    value = loss.between(labels, embeddings, others, vectors, excluded=excluded)
    np.testing.assert_allclose(value, pair_oracle.oracle(case, at), rtol=1e-10)
    found = gradients(
        lambda e, r: loss.between(labels, e, others, r, excluded=excluded),
        embeddings,
        vectors,
    )
    expected = central_differences(
        lambda e, r: pair_oracle.oracle(
            case, Pairs(labels, e, others, r, excluded), at
        ),
        embeddings,
        vectors,
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@on_tensorflow
@every_proxy_loss
def test_a_proxy_loss_in_float64(case):
    for per_class in (1, 3):
        labels, similarities = proxy_oracle.batch(per_class)
        loss = proxy_oracle.make(case, dtype="float64")
        expected = proxy_oracle.oracle(case, labels, similarities)
        np.testing.assert_allclose(
            loss(labels, similarities), expected, rtol=1e-10
        )
        (found,) = gradients(lambda s, f=loss, y=labels: f(y, s), similarities)
        (slopes,) = central_differences(
            lambda s, y=labels: proxy_oracle.oracle(case, y, s), similarities
        )
        # What central differences with a step of 1e-6 leave.
        np.testing.assert_allclose(found, slopes, atol=1e-7)


@on_tensorflow
@pytest.mark.parametrize("case", [*PAIR_LOSSES, *PROXY_LOSSES])
def test_half_precision_is_computed_in_float32(case):
    for dtype in ("float16", "bfloat16"):
        is_proxy = case in PROXY_LOSSES
        table = proxy_oracle if is_proxy else pair_oracle
        labels, inputs = table.batch()
        half = keras.ops.cast(inputs, dtype)
        exact = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))
        loss = table.make(case)
        found = [loss(labels, half)]
        if is_proxy:
            expected = proxy_oracle.oracle(case, labels, exact)
        else:
            expected = pair_oracle.oracle(case, Pairs(labels, exact))
            found.append(loss.between(labels, half, labels, half))
        np.testing.assert_allclose(found[0], expected, rtol=1e-5)
        for value in found:
            assert keras.backend.standardize_dtype(value.dtype) == "float32"
