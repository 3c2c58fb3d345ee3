"""What callbacks remember goes through JSON and arrays unchanged."""

import json

import numpy as np
import pytest

from keras_gsp.callbacks.exact_resume.callback_state import pack, unpack


def test_plain_values_survive():
    value = {
        "none": None,
        "flag": True,
        "count": 3,
        "best": float("-inf"),
        "name": "x",
        "weights": [np.arange(3.0), np.zeros((0, 2), "int8")],
        "pair": (1, [2.5, ()]),
        "scalar": np.float32(0.1),
        "nested": {"array": np.eye(2)},
    }
    arrays = {}
    packed = json.loads(json.dumps(pack(value, arrays, "callbacks")))
    back = unpack(packed, arrays)
    assert back.keys() == value.keys()
    np.testing.assert_equal(back, value)
    assert isinstance(back["pair"], tuple)
    assert all(name.startswith("callbacks/") for name in arrays)


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, np.array([None]), {"a": [set()]}]
)
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match="must be made of numbers, text"):
        pack(value, {}, "callbacks")
