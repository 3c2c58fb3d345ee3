"""Off TensorFlow only what reads images without it is tested."""

import pathlib

import keras

if keras.backend.backend() != "tensorflow":
    here = pathlib.Path(__file__).parent
    collect_ignore = [
        path.name
        for path in here.glob("test_*.py")
        if path.name != "test_without_tensorflow.py"
    ]
