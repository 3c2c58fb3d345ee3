"""Products as an accelerator computes them, and the products of a function."""

import contextlib
from unittest import mock

import keras

from keras_gsp.ops import precision


@contextlib.contextmanager
def rounded_products(is_marked=True):
    """Rounds the operands of every product to the ten bits of TF32.

    On JAX products that carry full precision keep their digits, elsewhere
    `full_matmul` splits its operands; without `is_marked` they are rounded,
    too.
    """
    if keras.backend.backend() == "jax":
        with _on_jax(is_marked):
            yield
        return
    with contextlib.ExitStack() as patches:
        for module, names, round_one in _products():
            for name in names:
                rounded = _rounding(getattr(module, name), round_one)
                patches.enter_context(mock.patch.object(module, name, rounded))
        split = mock.patch.object(
            precision, "rounds_products", lambda: is_marked
        )
        patches.enter_context(split)
        yield


def _rounding(product, round_one):
    def rounded(one, other, *args, **kwargs):
        return product(round_one(one), round_one(other), *args, **kwargs)

    def by_name(*args, **kwargs):
        if args:
            return rounded(*args, **kwargs)
        one, other = list(kwargs)[:2]
        kwargs[one], kwargs[other] = map(
            round_one, (kwargs[one], kwargs[other])
        )
        return product(**kwargs)

    return by_name


def _products():
    """Modules, their products, and how an operand is rounded there."""
    if keras.backend.backend() == "torch":
        import torch

        def round_one(x):
            bits = x.detach().contiguous().view(torch.int32)
            return x + ((bits + 0x1000 & -0x2000).view(x.dtype) - x.detach())

        single = torch.float32
        yield (
            torch,
            ["matmul"],
            lambda x: round_one(x) if x.dtype == single else x,
        )
        return
    import tensorflow as tf
    from tensorflow.python.ops import gen_math_ops

    def round_one(x):
        if x.dtype != tf.float32:
            return x
        rounded = tf.bitcast(
            (tf.bitcast(x, tf.int32) + 0x1000) & -0x2000, x.dtype
        )
        return x + tf.stop_gradient(rounded - x)

    names = ["mat_mul", "batch_mat_mul_v2", "batch_mat_mul_v3"]
    yield gen_math_ops, names, round_one


@contextlib.contextmanager
def _on_jax(is_marked):
    import jax
    from jax._src.lax import lax

    product, highest = lax.dot_general, (lax.Precision.HIGHEST,) * 2

    def round_one(x):
        if x.dtype != "float32":
            return x
        bits = jax.lax.bitcast_convert_type(x, "int32") + 0x1000 & -0x2000
        rounded = jax.lax.bitcast_convert_type(bits, "float32")
        return x + jax.lax.stop_gradient(rounded - x)

    def rounded(one, other, *args, **kwargs):
        found = args[1] if args[1:] else kwargs.get("precision")
        if not is_marked or lax.canonicalize_precision(found) != highest:
            one, other = round_one(one), round_one(other)
        return product(one, other, *args, **kwargs)

    # What was traced before has its products.
    jax.clear_caches()
    with mock.patch.object(lax, "dot_general", rounded):
        yield
    jax.clear_caches()


def products_on_jax(function, *arrays):
    """The precision of each product that a function traces."""
    import jax

    found = []

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                found.append(equation.params["precision"])
            for inner in jax.tree.leaves(
                equation.params, is_leaf=lambda x: hasattr(x, "eqns")
            ):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    walk(inner)

    walk(jax.make_jaxpr(function)(*arrays).jaxpr)
    return found
