"""Digits where a platform rounds: products on accelerators, means on JAX."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops import precision
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.precision import exact_mean, full_matmul
from tests.gradients import gradients
from tests.layers.pooling.test_poolings import POOLINGS, built
from tests.losses.tables import CASES, make, table
from tests.rounded_products import products_on_jax, rounded_products

on_torch = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="of PyTorch alone"
)
on_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="other backends have no jaxprs"
)
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


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def histograms():
    return np.random.default_rng(0).dirichlet(np.ones(5), 8).astype("float32")


LABELS = np.repeat(np.arange(4), 2)
HALF = LABELS < 2


def of_loss(case):
    labels, embeddings = table(case).batch()
    return functools.partial(make(case), labels), embeddings.astype("float32")


def of_pooling(name):
    layer = built(name)

    def call(features):
        pooled = layer(features)
        return ops.sum(pooled * ops.convert_to_tensor(normal(*pooled.shape)))

    return call, normal(2, 12, 6)


def of_proxies():
    layer = gsp.layers.ClassProxies(3)
    layer.build((None, 6))
    return lambda x: ops.sum(ops.square(layer(x))), normal(8, 6)


def of_histogram():
    layer = gsp.layers.PrototypeHistogram(5)
    layer.build((2, 7, 6))
    layer.prototypes.assign(normal(5, 6, seed=1))
    return squares(layer), normal(2, 7, 6)


def of_whitening():
    layer = gsp.layers.Whitening(3, shrinkage=0.1)
    layer.adapt(normal(20, 6))
    return lambda x: ops.sum(layer(x) ** 3), normal(8, 6)


def of_gsp(**arguments):
    layer = gsp.layers.GeneralizedSumPooling(
        4, inverse_temperature=80.0, return_histogram=True, **arguments
    )
    layer.build((2, 12, 6))

    def call(features):
        pooled, histogram = layer(features)
        return ops.sum(pooled**2) + ops.sum(histogram**2)

    return call, 0.3 * normal(2, 12, 6)


def of_mined(miner):
    loss = gsp.losses.ContrastiveLoss(miner=miner, seed=0)
    return functools.partial(loss, LABELS), normal(8, 6)


def of_zero_shot():
    classes = normal(4, 6)
    loss = gsp.losses.ZeroShotLoss(scale=9.5)
    return (
        lambda z: loss.compute(LABELS, z, classes, first_half=HALF),
        histograms(),
    )


def of_cross_batch():
    loss = gsp.losses.CrossBatchLoss(gsp.losses.MultiSimilarityLoss())
    return (
        lambda z: loss.compute(LABELS, z, normal(8, 6), first_half=HALF),
        histograms(),
    )


def squares(function, *others):
    return lambda x: ops.sum(function(x, *others) ** 2)


ROWS = {
    **{case: functools.partial(of_loss, case) for case in CASES},
    **{
        name: functools.partial(of_pooling, name)
        for name in POOLINGS
        if name not in LEARNED
    },
    "gsp": of_gsp,
    "affine gsp": functools.partial(of_gsp, use_affine_costs=True),
    "proxies": of_proxies,
    "whitening": of_whitening,
    "zero-shot": of_zero_shot,
    "cross-batch": of_cross_batch,
    "mined by similarity": functools.partial(of_mined, "multi_similarity"),
    "mined by distance": functools.partial(of_mined, "distance_weighted"),
    "distances": lambda: (
        squares(pairwise_distances, normal(5, 6, seed=1)),
        normal(8, 6),
    ),
    "histogram": of_histogram,
    "center regularizer": lambda: (
        gsp.losses.CenterRegularizer(),
        normal(3, 2, 6),
    ),
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


@on_jax
def test_every_product_that_decides_carries_full_precision():
    import jax

    highest = (jax.lax.Precision.HIGHEST,) * 2
    for name, row in ROWS.items():
        function, array = row()
        found = products_on_jax(jax.value_and_grad(function), array)
        assert bool(found) == (name not in NO_PRODUCT), name
        assert set(found) <= {highest}, name
    for name, learned in LEARNED.items():
        found = products_on_jax(*of_pooling(name))
        assert sum(one != highest for one in found) == learned, name


FEW = ("multi_similarity", "affine gsp", "distances", "zero-shot")
NAMES = [
    FEW,
    pytest.param(sorted(ROWS.keys() - NO_PRODUCT), marks=pytest.mark.slow),
]
if keras.backend.backend() == "jax":  # The test above has all rows.
    NAMES = [pytest.param(FEW, marks=pytest.mark.slow)]


def value_and_gradient(row):
    keras.utils.set_random_seed(0)
    function, array = row()
    value = keras.ops.convert_to_numpy(function(ops.convert_to_tensor(array)))
    return value, gradients(function, array)[0]


def relative_error(found, expected):
    """The larger one of the errors of a value and of its gradient."""
    return max(
        np.abs(one - other).max() / np.abs(other).max()
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("names", NAMES)
def test_digits_survive_products_of_ten_bits(names):
    # PyTorch's own backward products are not rounded here: fewer digits go.
    bound = 1e-5 if keras.backend.backend() == "torch" else 2e-5
    plain = {name: value_and_gradient(ROWS[name]) for name in names}
    for is_marked in (True, False):
        with rounded_products(is_marked):
            lost = [
                name
                for name, expected in plain.items()
                # 1e-5 at most with the mark, 4e-5 at least without it.
                if not relative_error(value_and_gradient(ROWS[name]), expected)
                <= bound
            ]
        assert lost == ([] if is_marked else list(names))


@on_torch
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


@on_torch
def test_autocast_rounds_no_product_that_decides():
    import torch

    for name in FEW:
        function, array = ROWS[name]()
        tensor = ops.convert_to_tensor(array)
        expected = float(function(tensor))
        with torch.autocast(tensor.device.type, dtype=torch.bfloat16):
            assert float(function(tensor)) == expected, name


def test_full_products_have_the_digits_of_float32():
    shapes = [((7, 5), (5, 6)), ((3, 7, 5), (5, 6)), ((3, 7, 5), (1, 5, 6))]
    for one, other in shapes:
        arrays = normal(*one), normal(*other, seed=1)
        exact = np.matmul(*(array.astype("float64") for array in arrays))
        upstream = normal(*exact.shape, seed=2)

        def total(one, other, upstream=upstream, product=full_matmul):
            return ops.sum(ops.multiply(product(one, other), upstream))

        slopes = gradients(total, *arrays)
        with rounded_products():
            found = keras.ops.convert_to_numpy(full_matmul(*arrays))
            rounded = gradients(total, *arrays)
            loose = functools.partial(total, product=ops.matmul)
            other = gradients(loose, *arrays)
        assert np.abs(found - exact).max() < 2e-6
        for slope, same, worse in zip(slopes, rounded, other, strict=True):
            assert slope.shape == same.shape
            assert np.abs(slope - same).max() < 4e-6
            assert np.abs(slope - worse).max() > 1e-4


@pytest.mark.usefixtures("double_precision")
def test_mean_keeps_every_digit():
    values = np.random.default_rng(0).normal(size=(5, 7))
    for axis in (None, 0, 1, -1):
        found = exact_mean(ops.convert_to_tensor(values), axis)
        np.testing.assert_allclose(found, values.mean(axis), rtol=1e-14)
