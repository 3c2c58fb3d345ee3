"""The dtype that arithmetic runs in."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.precision import at_least_float32, exact_mean


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int32", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_half_precision_and_integers_become_float32(dtype, expected):
    found = at_least_float32(ops.ones((2,), dtype=dtype))
    assert keras.backend.standardize_dtype(found.dtype) == expected


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_mean_keeps_every_digit(axis):
    values = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(
        np.asarray(exact_mean(ops.convert_to_tensor(values), axis)),
        values.mean(axis),
        rtol=1e-14,
    )
