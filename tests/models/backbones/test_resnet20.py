"""ResNet-20 has its published depth and trains in both versions."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp


@pytest.mark.parametrize("version", [1, 2])
def test_depth_is_twenty_and_outputs_survive_saving(version, tmp_path):
    model = gsp.models.resnet20((32, 32, 3), version=version)
    kernels = [w for w in model.trainable_weights if len(w.shape) == 4]
    shortcuts = [w for w in kernels if w.shape[0] == 1]
    assert model.output_shape == (None, 8, 8, {1: 64, 2: 256}[version])
    if version == 1:
        assert len(kernels) - len(shortcuts) + 1 == 20
    else:  # A bottleneck is 1x1, 3x3, 1x1, the shortcut of a stage 1x1 too.
        sizes = [w.shape[0] for w in kernels]
        assert (sizes.count(3), sizes.count(1)) == (7, 15)
    model = gsp.models.resnet20(version=version)  # Of any size.
    model.save(tmp_path / "model.keras")
    images = np.random.default_rng(0).uniform(0, 255, (2, 20, 24, 3))
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert model(images).shape[:3] == (2, 5, 6)
    np.testing.assert_array_equal(again(images), model(images))


def test_other_versions_are_refused():
    with pytest.raises(ValueError, match="version=3"):
        gsp.models.resnet20(version=3)
