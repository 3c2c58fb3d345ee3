"""On JAX only values and gradients are tested; TensorFlow runs the rest."""

import keras

from tests.gradients import values_without_a_tape  # noqa: F401

if keras.backend.backend() != "tensorflow":
    collect_ignore_glob = ["test_[!v]*.py"]
