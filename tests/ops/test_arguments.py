"""Range checks of arguments."""

import keras
import numpy as np
import pytest

from keras_gsp.ops.arguments import (
    check_choice,
    check_count,
    check_integer,
    check_interval,
    check_not_negative,
    check_positive,
    check_seed,
)
from tests.compiled import on_tensorflow

pytestmark = on_tensorflow
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "allowed", "refused", "message"),
    [
        (check_count, [1], [2.5, 2.0, True, "2", 0, None], "integer of at le"),
        (check_positive, [1e-30], [0.0, -1.0, NAN, INF], "positive and fin"),
        (check_not_negative, [0.0, INF], [-1e-9, NAN], "at least 0"),
        (
            lambda **x: check_integer(least=3, **x),
            [3, np.int64(3)],
            [2, 3.0],
            "integer of at least 3",
        ),
        (check_integer, [-(2**70)], [0.5, None], "must be an integer"),
        (
            lambda **x: check_interval("(0, 1]", **x),
            [1e-9, 1.0],
            [0.0, 1.1, NAN],
            r"in \(0, 1\]",
        ),
        (
            lambda **x: check_choice("a", "b", None, **x),
            ["a", None],
            ["c", 1],
            '"a", "b" or None',
        ),
    ],
)
def test_what_is_out_of_range_is_named(check, allowed, refused, message):
    for value in allowed:
        check(size=value)
    for value in refused:
        with pytest.raises(ValueError, match=f"`size` .*{message}.*size="):
            check(size=value)


def test_optional_ones_may_be_none_and_a_seed_is_an_int():
    check_integer(is_optional=True, size=None)
    assert check_seed(3) == 3
    assert check_seed(None) is None
    with pytest.raises(TypeError, match="`seed` must be an int or None"):
        check_seed(keras.random.SeedGenerator(0))
