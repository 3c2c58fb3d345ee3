"""What callbacks remember goes through JSON and arrays unchanged."""

import json

import keras
import numpy as np
import pytest

from keras_gsp.callbacks.exact_resume.callback_state import (
    callback_state,
    pack,
    set_callback_state,
    unpack,
)


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


def test_arguments_models_and_functions_are_not_state():
    callback = keras.callbacks.ReduceLROnPlateau("loss", mode="min")
    callback.set_params({"epochs": 3})
    callback.set_model(keras.Sequential([keras.layers.Dense(1)]))
    callback._set_monitor_op()
    assert callback_state(callback).keys() == {
        "best",
        "cooldown_counter",
        "wait",
    }


def test_a_callback_may_say_itself_what_it_remembers():
    class Counter(keras.callbacks.Callback):
        count = 0

        def get_state(self):
            return {"count": self.count}

        def set_state(self, state):
            self.count = state["count"]

    counter, other = Counter(), Counter()
    counter.count = 3
    set_callback_state(other, callback_state(counter))
    assert other.count == 3
