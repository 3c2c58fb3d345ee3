"""A mean in the precision of its input, where JAX itself rounds."""

import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.precision import exact_mean


@pytest.mark.usefixtures("double_precision")
def test_mean_keeps_every_digit():
    values = np.random.default_rng(0).normal(size=(5, 7))
    for axis in (None, 0, 1, -1):
        found = exact_mean(ops.convert_to_tensor(values), axis)
        np.testing.assert_allclose(found, values.mean(axis), rtol=1e-14)
