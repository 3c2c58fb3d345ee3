"""Pipelines that end at once: no autotuner that would be waited for."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.data pipelines"
)
PIXELS = np.zeros((4, 8, 8, 3), "uint8")
LABELS = np.array([0, 0, 1, 1])


def indices():
    return gsp.data.class_balanced_batches(
        LABELS, classes_per_batch=2, samples_per_class=1
    )


PIPELINES = {
    "class_balanced_batches": indices,
    "augmented_batches": lambda: gsp.data.augmented_batches(
        PIXELS, LABELS, indices(), size=4, resize=6
    ),
    "evaluation_batches": lambda: gsp.data.evaluation_batches(
        PIXELS, LABELS, size=4, resize=6
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_public_pipelines_have_none(name):
    batches = PIPELINES[name]()
    assert batches.options().autotune.enabled is False
    # What is built on them has none either.
    longer = batches.map(lambda *elements: elements)
    assert longer.options().autotune.enabled is False
