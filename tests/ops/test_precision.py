"""Digits where a platform rounds: products on accelerators, means on JAX.

Each row is a function of one array. On JAX every product of a row says how
precise it is; elsewhere the operands are rounded to the ten bits of TF32.
"""

import contextlib
import functools
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops import precision
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.precision import exact_mean
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


def of_gsp(**arguments):
    layer = gsp.layers.GeneralizedSumPooling(
        4, inverse_temperature=80.0, return_histogram=True, **arguments
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
    "affine gsp": functools.partial(of_gsp, use_affine_costs=True),
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


@contextlib.contextmanager
def rounded_products(is_marked=True):
    """Rounds the operands of every product; `full_matmul` splits its own.

    Without `is_marked` it does not.
    """
    if BACKEND == "torch":
        import torch as module

        def rounded(x):
            if x.dtype != module.float32:
                return x
            bits = x.detach().contiguous().view(module.int32)
            bits = (bits + 0x1000 & -0x2000).view(x.dtype)
            return x + (bits - x.detach())

        names = ["matmul"]
    else:
        import tensorflow as tf
        from tensorflow.python.ops import gen_math_ops as module

        def rounded(x):
            if x.dtype != tf.float32:
                return x
            bits = (tf.bitcast(x, tf.int32) + 0x1000) & -0x2000
            return x + tf.stop_gradient(tf.bitcast(bits, x.dtype) - x)

        names = ["mat_mul", "batch_mat_mul_v2", "batch_mat_mul_v3"]

    def of(product):
        def call(*arrays, **options):
            if arrays:
                one, other, *rest = arrays
                return product(rounded(one), rounded(other), *rest, **options)
            for name in [*options][:2]:
                options[name] = rounded(options[name])
            return product(**options)

        return call

    split = mock.patch.object(precision, "rounds_products", lambda: is_marked)
    with contextlib.ExitStack() as patches:
        for name in names:
            product = of(getattr(module, name))
            patches.enter_context(mock.patch.object(module, name, product))
        patches.enter_context(split)
        yield


def value_and_gradient(name):
    keras.utils.set_random_seed(0)
    function, array = ROWS[name]()
    value = ops.convert_to_numpy(function(ops.convert_to_tensor(array)))
    return value, gradients(function, array)[0]


def relative_error(found, expected):
    """The larger one of the errors of a value and of its gradient."""
    return max(
        np.abs(one - other).max() / np.abs(other).max()
        for one, other in zip(found, expected, strict=True)
    )


@not_on_jax
@pytest.mark.parametrize(
    "name", ["multi_similarity", "affine gsp", "distances", "zero-shot"]
)
def test_digits_survive_products_of_ten_bits(name):
    # PyTorch's own backward products are not rounded here: fewer digits go.
    bound = 1e-5 if BACKEND == "torch" else 2e-5
    expected = value_and_gradient(name)
    for is_marked in (True, False):
        with rounded_products(is_marked):
            error = relative_error(value_and_gradient(name), expected)
        # 1e-5 at most with the mark, 4e-5 at least without it.
        assert (error <= bound) == is_marked


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
