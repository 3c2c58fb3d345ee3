"""The dtype that arithmetic runs in."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.precision import at_least_float32, exact_mean


@pytest.mark.usefixtures("double_precision")
def test_half_precision_and_integers_become_float32():
    for dtype in ("float16", "bfloat16", "int32", "float32", "float64"):
        found = at_least_float32(ops.ones((2,), dtype=dtype)).dtype
        expected = "float64" if dtype == "float64" else "float32"
        assert keras.backend.standardize_dtype(found) == expected


@pytest.mark.usefixtures("double_precision")
def test_mean_keeps_every_digit():
    values = np.random.default_rng(0).normal(size=(5, 7))
    for axis in (None, 0, 1, -1):
        found = exact_mean(ops.convert_to_tensor(values), axis)
        np.testing.assert_allclose(found, values.mean(axis), rtol=1e-14)
