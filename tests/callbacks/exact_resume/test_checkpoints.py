"""A checkpoint file is read back whole or refused."""

import json
import pickle

import ml_dtypes
import numpy as np
import pytest

from keras_gsp.callbacks.exact_resume.checkpoints import (
    pack,
    read_checkpoint,
    unpack,
    write_checkpoint,
)

ARRAYS = {
    "model/0": np.arange(6.0, dtype="float32").reshape(2, 3),
    "model/1": np.array(7, dtype="int32"),
    "model/2": np.array([True, False]),
    "model/3": np.array([[1.5, -2.0]], dtype=ml_dtypes.bfloat16),
    "model/4": np.array([1, 2**32 - 1], dtype="uint32"),
    "model/5": np.zeros((0, 4)),
    # Its dtype is no longer NumPy's own object, but says the same.
    "model/6": pickle.loads(pickle.dumps(np.ones(3, "float32"))),
}
MANIFEST = {"epoch": 3, "settings": {"name": "run"}, "best": float("inf")}


def test_round_trip_keeps_every_bit_shape_and_dtype(tmp_path):
    write_checkpoint(tmp_path / "a.npz", MANIFEST, ARRAYS)
    manifest, arrays = read_checkpoint(tmp_path / "a.npz")
    assert manifest == MANIFEST
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()


def test_pickles_are_refused(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "a.npz", manifest=objects)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_checkpoint(tmp_path / "a.npz")


def test_plain_values_of_callbacks_survive_and_others_are_refused():
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
    for other in (object(), {1: 2}, np.array([None]), {"a": [set()]}):
        with pytest.raises(TypeError, match="must be made of numbers, text"):
            pack(other, {}, "callbacks")
