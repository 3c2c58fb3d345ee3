"""Message passing between samples: contract, value, laws, errors."""

import numpy as np
import pytest
from keras import ops

from keras_gsp.layers import BatchMessagePassing
from tests.compiled import not_on_jax, on_tensorflow
from tests.gradients import gradients, slope_errors

pytestmark = pytest.mark.usefixtures("exact_layers")


def embeddings_of(shape=(5, 6)):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def normalized(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def test_equals_the_formula():
    x = embeddings_of()
    layer = BatchMessagePassing(2, 3)
    found = layer(x)
    x = x.astype("float64")
    for step in range(2):
        w = {
            weight.name.removesuffix(f"_{step}"): np.asarray(weight)
            for weight in layer.weights
            if weight.name.endswith(f"_{step}")
        }
        mixed = np.zeros((5, 6))
        for i in range(5):
            for head in range(3):
                part = slice(2 * head, 2 * head + 2)
                query = (x[i] @ w["query_kernel"])[part]
                keys = (x @ w["key_kernel"])[:, part]
                scores = np.exp(keys @ query / np.sqrt(2))
                values = (x @ w["value_kernel"])[:, part]
                mixed[i, part] = scores / scores.sum() @ values
        refined = []
        for i in range(5):
            g = normalized(x[i] + mixed[i] @ w["message_kernel"])
            hidden = np.maximum(g @ w["hidden_kernel"] + w["hidden_bias"], 0)
            g = g + hidden @ w["output_kernel"] + w["output_bias"]
            refined.append(normalized(g))
        x = np.array(refined)
    np.testing.assert_allclose(found, x, atol=2e-5)


@on_tensorflow
def test_a_loss_of_one_sample_reaches_all(double_precision):
    layer = BatchMessagePassing(num_heads=2, dtype="float64")
    layer.build((5, 6))
    direction = ops.convert_to_tensor(np.arange(6.0) ** 2)

    def loss(x):
        return ops.sum(layer(x)[0] * direction)

    embeddings = embeddings_of().astype("float64")
    (found,) = gradients(loss, embeddings)
    assert (np.abs(found).max(axis=1) > 0).all()
    assert slope_errors(loss, embeddings) < 1e-5


@not_on_jax
def test_order_is_irrelevant_groups_are_batches_and_what_does_not_fit():
    x = embeddings_of()
    layer = BatchMessagePassing(2, 3)
    found = np.asarray(layer(x))
    np.testing.assert_allclose(ops.flip(layer(x[::-1]), 0), found, atol=1e-5)
    groups = np.array([True, False, True, True, False])
    grouped = np.asarray(layer(x, groups=groups))
    assert np.abs(grouped - found).max() > 1e-3
    for group in (groups, ~groups):
        np.testing.assert_allclose(grouped[group], layer(x[group]), atol=1e-5)
    for arguments, shape, message in (
        ((), (5, 6), "num_heads=4, size 6"),
        ((), (2, 3, 4), r"Received: shape \(2, 3, 4\)"),
    ):
        with pytest.raises(ValueError, match=message):
            BatchMessagePassing(*arguments)(embeddings_of(shape))
