"""A learner trained and saved on PyTorch by version 0.1 loads everywhere.

An encoder with GSP, trained with ZSR and a memory for three steps. The files
stay as they are: a later version must read them.
"""

import pathlib

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data.preprocessing import preprocessing_of

pytestmark = pytest.mark.usefixtures("exact_layers")

SAVED = pathlib.Path(__file__).parent / "saved"
RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(size=(12, 16, 16, 3)).astype("float32")
LABELS = np.arange(12) // 3


@pytest.mark.slow
def test_a_learner_trained_on_pytorch_answers_alike_and_trains_on():
    on_torch = keras.backend.backend() == "torch"
    # Keras names its optimizer by a module of PyTorch's backend.
    learner = keras.saving.load_model(
        SAVED / "learner_0_1.keras", compile=on_torch
    )
    if on_torch:
        assert int(learner.optimizer.iterations) == 3
    else:
        learner.compile("adam", gsp.losses.MultiSimilarityLoss())
    expected = np.load(SAVED / "learner_0_1.npz")
    assert preprocessing_of(learner.encoder).shorter_side == 18
    found = learner.encoder.predict(IMAGES, verbose=0)["embedding"]
    # Other backends sum in another order.
    np.testing.assert_allclose(found, expected["embeddings"], atol=2e-6)
    loss = learner.evaluate(IMAGES, LABELS, batch_size=12, verbose=0)
    assert loss == pytest.approx(float(expected["loss"]), rel=1e-4)
    before = int(learner.optimizer.iterations)
    learner.fit(IMAGES, LABELS, batch_size=12, verbose=0)
    assert int(learner.optimizer.iterations) == before + 1
