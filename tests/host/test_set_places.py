"""Positions of true values are those that NumPy finds."""

import numpy as np
import pytest

from keras_gsp.host.set_places import set_places


@pytest.mark.parametrize(
    "shape", [(0,), (7,), (8,), (5, 16), (3, 5), (2, 4, 8)]
)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_equals_flatnonzero(shape, share):
    mask = np.random.default_rng(0).random(shape) < share
    np.testing.assert_array_equal(set_places(mask), np.flatnonzero(mask))


def test_strided_views_are_supported():
    mask = np.random.default_rng(0).random((16, 16)) < 0.3
    for view in (mask[:, ::2], mask.T, mask[3:, 1:9]):
        np.testing.assert_array_equal(set_places(view), np.flatnonzero(view))
