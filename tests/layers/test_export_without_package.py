"""An exported model pools in a process that cannot import the package."""

import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from keras_gsp.layers import GeneralizedSumPooling
from tests.compiled import on_tensorflow

# Starts a process.
pytestmark = [on_tensorflow, pytest.mark.slow]

SERVE = """
    import sys

    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "keras_gsp":
                raise ImportError(name)

    sys.meta_path.insert(0, Blocker())
    import numpy as np
    import tensorflow as tf

    folder = sys.argv[1]
    served = tf.saved_model.load(folder + "/model").signatures
    features = np.load(folder + "/features.npy")
    outputs = served["serving_default"](tf.constant(features))
    np.savez(folder + "/outputs.npz", *[outputs[k] for k in sorted(outputs)])
    assert not any(name.startswith("keras_gsp") for name in sys.modules)
"""


def test_saved_model_gives_the_same_pooling(tmp_path):
    inputs = keras.Input((None, None, 6))
    outputs = GeneralizedSumPooling(7, 0.2, 8.0, return_histogram=True)(inputs)
    model = keras.Model(inputs, list(outputs))
    features = np.random.default_rng(0).normal(size=(3, 5, 4, 6))
    features = features.astype("float32")
    model.export(tmp_path / "model", verbose=False)
    np.save(tmp_path / "features.npy", features)
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SERVE), str(tmp_path)],
        check=True,
        cwd=tmp_path,
    )
    served = np.load(tmp_path / "outputs.npz")
    expected = sorted(model(features), key=lambda output: -output.shape[-1])
    found = sorted(served.values(), key=lambda output: -output.shape[-1])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
