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
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "refused", "message"),
    [
        (
            lambda value: check_count(size=value),
            (2.5, 2.0, True, "2", 0, None),
            "`size` must be an integer of at least 1. Received: size={!r}",
        ),
        (
            lambda value: check_positive(scale=value),
            (0.0, -1.0, NAN, INF),
            "positive .* scale={!r}",
        ),
        (
            lambda value: check_not_negative(margin=value),
            (-1e-9, NAN),
            "at least 0. .*margin={!r}",
        ),
        (
            lambda value: check_integer(least=3, size=value),
            (2, 3.0),
            "at least 3. Received: size={!r}",
        ),
        (
            lambda value: check_integer(seed=value),
            (0.5, None),
            "`seed` must be an integer. Received: seed={!r}",
        ),
    ],
)
def test_what_is_out_of_range_is_named(check, refused, message):
    for value in refused:
        with pytest.raises(ValueError, match=message.format(value)):
            check(value)


def test_the_ends_of_ranges_and_numpy_integers_pass():
    check_positive(scale=1e-30)
    check_not_negative(margin=0.0)
    check_integer(least=2, size=np.int64(2))
    check_integer(seed=-(2**70))
    check_integer(is_optional=True, seed=None)


def test_seed_of_a_loss_is_an_int_or_none():
    assert check_seed(3) == 3
    assert check_seed(None) is None
    with pytest.raises(TypeError, match="`seed` must be an int or None"):
        check_seed(keras.random.SeedGenerator(0))
