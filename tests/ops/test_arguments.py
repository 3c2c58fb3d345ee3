"""Range checks of arguments."""

import keras
import numpy as np
import pytest

from keras_gsp.ops.arguments import (
    check_count,
    check_integer,
    check_not_negative,
    check_positive,
    check_seed,
)
from tests.compiled import on_tensorflow

pytestmark = on_tensorflow


@pytest.mark.parametrize("count", [2.5, 2.0, True, "2", 0, None])
def test_counts_are_integers_of_at_least_one(count):
    with pytest.raises(ValueError, match="`size` must be an integer of at le"):
        check_count(size=count)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_positive_numbers_are_positive_and_finite(value):
    check_positive(scale=1e-30)
    with pytest.raises(ValueError, match=f"positive .* scale={value}"):
        check_positive(scale=value)


def test_numbers_that_are_not_negative():
    check_not_negative(margin=0.0)
    for value in (-1e-9, float("nan")):
        with pytest.raises(ValueError, match=f"at least 0. .*margin={value}"):
            check_not_negative(margin=value)


def test_integers_of_numpy_are_integers():
    check_integer(least=2, size=np.int64(2))
    with pytest.raises(ValueError, match="at least 3. Received: size=2"):
        check_integer(least=3, size=2)


def test_any_integer_passes_without_a_bound():
    check_integer(seed=-(2**70))
    check_integer(is_optional=True, seed=None)
    with pytest.raises(ValueError, match="`seed` must be an integer. Rec"):
        check_integer(seed=0.5)


def test_seed_of_a_loss_is_an_int_or_none():
    assert check_seed(3) == 3
    assert check_seed(None) is None
    with pytest.raises(TypeError, match="`seed` must be an int or None"):
        check_seed(keras.random.SeedGenerator(0))
