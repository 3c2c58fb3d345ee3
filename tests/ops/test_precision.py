"""Digits where a platform rounds: products on accelerators, means on JAX.

Each row is a function of one array; on JAX every product of a row says how
precise it is. Elsewhere `full_matmul` meets products that round to ten bits.
"""

import functools

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops import precision
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.precision import exact_mean, full_matmul
from tests.compiled import not_on_jax
from tests.gradients import gradients
from tests.layers.pooling.test_poolings import POOLINGS, built
from tests.losses.tables import CASES, make, table

BACKEND = keras.backend.backend()
# Products of these poolings with learned maps keep the backend's setting, as a
# backbone's do: that many in a call.
LEARNED = {
    "AttentionPooling": 1,
    "CBAMPooling": 4,
    "DELFPooling": 2,
    "EfficientProbingPooling": 1,
    "GSoPPooling": 2,
    "NetVLADPooling": 2,
    "OTKPooling": 1,
    "OptimalTransportPooling": 3,
    "SOLARPooling": 4,
    "SimPooling": 2,
}
LABELS = np.repeat(np.arange(4), 2)
HALF = LABELS < 2


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def histograms():
    return np.random.default_rng(0).dirichlet(np.ones(5), 8).astype("float32")


def of_loss(case):
    labels, embeddings = table(case).batch()
    return functools.partial(make(case), labels), embeddings.astype("float32")


def of_pooling(name):
    layer = built(name)

    def call(features):
        pooled = layer(features)
        return ops.sum(pooled * ops.convert_to_tensor(normal(*pooled.shape)))

    return call, normal(2, 12, 6)


def of_gsp():
    layer = gsp.layers.GeneralizedSumPooling(
        4, return_histogram=True, use_affine_costs=True
    )
    layer.build((2, 12, 6))

    def call(features):
        pooled, histogram = layer(features)
        return ops.sum(pooled**2) + ops.sum(histogram**2)

    return call, 0.3 * normal(2, 12, 6)


def of_whitening():
    layer = gsp.layers.Whitening(3, shrinkage=0.1)
    layer.adapt(normal(20, 6))
    return lambda x: ops.sum(layer(x) ** 3), normal(8, 6)


def of_distances():
    others = normal(5, 6, seed=1)
    return lambda x: ops.sum(pairwise_distances(x, others) ** 2), normal(8, 6)


def of_regularizer(loss, targets):
    def call(histograms):
        return loss.compute(LABELS, histograms, targets, first_half=HALF)

    return call, histograms()


ZERO_SHOT = gsp.losses.ZeroShotLoss(scale=9.5)
CROSS_BATCH = gsp.losses.CrossBatchLoss(gsp.losses.MultiSimilarityLoss())
ROWS = {case: functools.partial(of_loss, case) for case in CASES}
ROWS |= {name: functools.partial(of_pooling, name) for name in POOLINGS}
ROWS |= {
    "gsp": of_gsp,
    "whitening": of_whitening,
    "zero-shot": functools.partial(of_regularizer, ZERO_SHOT, normal(4, 6)),
    "cross-batch": functools.partial(of_regularizer, CROSS_BATCH, normal(8, 6)),
    "distances": of_distances,
}
# Without a product: their similarities come from a layer, or differences.
NO_PRODUCT = {
    "AverageMaxPooling",
    "SmoothedMatchKernelPooling",
    *(case for case in CASES if table(case).__name__.endswith("proxy_oracle")),
    "CroWPooling",
    "GeneralizedMeanPooling",
    "WELDONPooling",
}


def products_on_jax(function, array):
    """The precision of each product that a function traces."""
    import jax

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                yield equation.params["precision"]
            for inner in jax.tree.leaves(
                equation.params, is_leaf=lambda x: hasattr(x, "eqns")
            ):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from walk(inner)

    return [*walk(jax.make_jaxpr(function)(array).jaxpr)]


@pytest.mark.skipif(BACKEND != "jax", reason="others have no jaxprs")
def test_every_product_that_decides_carries_full_precision():
    import jax

    highest = (jax.lax.Precision.HIGHEST,) * 2
    for name, row in ROWS.items():
        function, array = row()
        if name not in LEARNED:
            function = jax.value_and_grad(function)
        found = products_on_jax(function, array)
        assert bool(found) == (name not in NO_PRODUCT), name
        num_learned = sum(one != highest for one in found)
        assert num_learned == LEARNED.get(name, 0), name


@not_on_jax
def test_digits_survive_products_of_ten_bits(monkeypatch):
    one, other = normal(4, 8, 6), normal(6, 5, seed=1)
    upstream = normal(4, 8, 5, seed=2)
    matmul = ops.matmul

    def upper(array):
        return precision._halves(ops.convert_to_tensor(array))[0]

    def rounding(left, right):
        return matmul(upper(left), upper(right))

    def loss(one, other):
        return ops.sum(
            full_matmul(one, other) * ops.convert_to_tensor(upstream)
        )

    bits = ops.convert_to_numpy(upper(one)).view("int32")
    assert not (bits & 0x1FFF).any()
    monkeypatch.setattr(precision, "rounds_products", lambda: True)
    monkeypatch.setattr(ops, "matmul", rounding)
    exact = one @ other
    of_other = np.swapaxes(one, 1, 2) @ upstream
    for found, expected in zip(
        [full_matmul(one, other), *gradients(loss, one, other)],
        [exact, upstream @ other.T, of_other.sum(axis=0)],
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (
        np.abs(ops.convert_to_numpy(rounding(one, other)) - exact).max() > 1e-4
    )


@pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch alone")
def test_every_setting_of_pytorch_that_rounds_is_seen(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    matmul = torch.backends.cuda.matmul
    assert not precision.rounds_products()
    rows = [(matmul, "allow_tf32", True, False)]
    if hasattr(matmul, "fp32_precision"):
        rows.append((matmul, "fp32_precision", "tf32", "none"))
        rows.append((torch.backends, "fp32_precision", "tf32", "none"))
    for owner, name, on, off in rows:
        setattr(owner, name, on)
        try:
            assert precision.rounds_products(), (owner, name)
        finally:
            setattr(owner, name, off)
        assert not precision.rounds_products(), (owner, name)


@pytest.mark.usefixtures("double_precision")
def test_mean_keeps_every_digit():
    values = np.random.default_rng(0).normal(size=(5, 7))
    for axis in (None, 0, 1, -1):
        found = exact_mean(ops.convert_to_tensor(values), axis)
        np.testing.assert_allclose(found, values.mean(axis), rtol=1e-14)
