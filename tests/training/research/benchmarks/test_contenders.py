"""Contenders do the same before they are timed, and refuse what they cannot."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("most rivals are TensorFlow's", allow_module_level=True)

from training.research.benchmarks import (
    pipeline,
    pooling,
)
from training.research.benchmarks.search_contender import CONTENDERS


@pytest.mark.parametrize("seed", [0, 1])
def test_exact_contenders_find_the_same_neighbors(seed):
    rng = np.random.default_rng(seed)
    gallery = rng.normal(size=(300, 8)).astype("float32")
    queries = rng.normal(size=(70, 8)).astype("float32")
    distances = np.linalg.norm(queries[:, None] - gallery, axis=2)
    nearest = np.argsort(distances, axis=1)[:, :5]
    found = CONTENDERS["ExactIndex"](gallery)(queries, 5)
    np.testing.assert_array_equal(found, nearest)
    for name in ("ExactIndex float16", "ExactIndex int8"):
        found = CONTENDERS[name](gallery)(queries, 5)
        assert np.mean(found == nearest) > 0.8, name


def test_made_images_are_read_as_any_folder(tmp_path):
    images = pipeline.image_folder(pipeline.made_images(tmp_path, 2))
    assert images.num_classes == 2 and len(images) == 16


def test_every_pooling_keeps_the_shape_that_is_timed():
    size = (2, 3, 3, 8, 2)
    layers = pooling.contenders(("gap", "gsp"), size, 3, "float32")
    features = np.ones(size[:4], "float32")
    shapes = {name: layer(features).shape for name, layer in layers.items()}
    assert shapes.pop(pooling.UNIT) == (2, 3, 3, 2)
    assert {tuple(shape) for shape in shapes.values()} == {(2, 8)}
