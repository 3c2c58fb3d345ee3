"""On JAX only values and gradients are tested; TensorFlow runs the rest."""

import keras

if keras.backend.backend() != "tensorflow":
    collect_ignore_glob = ["test_[!v]*.py"]
