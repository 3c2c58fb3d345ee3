"""Contenders do the same before they are timed, and refuse what they cannot."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("most rivals are TensorFlow's", allow_module_level=True)

from training.research.benchmarks import (
    k_center,
    pipeline,
    pooling,
    retrieval,
    sampler,
)
from training.research.benchmarks.search_contender import CONTENDERS

FEW = sampler.Settings().small()


def test_both_choose_the_same_proxies():
    settings = k_center.Settings(num_classes=30, embedding_size=6)
    pool, existing = k_center.vectors(settings)
    chosen = [f(pool, existing, 4) for f in k_center.CONTENDERS.values()]
    assert chosen[0].shape == (30, 4)
    np.testing.assert_array_equal(*chosen)


@pytest.mark.parametrize("seed", [0, 1])
def test_exact_contenders_find_the_same_neighbors(seed):
    rng = np.random.default_rng(seed)
    gallery = rng.normal(size=(300, 8)).astype("float32")
    queries = rng.normal(size=(70, 8)).astype("float32")
    distances = np.linalg.norm(queries[:, None] - gallery, axis=2)
    nearest = np.argsort(distances, axis=1)[:, :5]
    for name in ("ExactIndex", "NumPy"):
        found = CONTENDERS[name](gallery)(queries, 5)
        np.testing.assert_array_equal(found, nearest, err_msg=name)


def test_rounded_contenders_find_most_of_them():
    settings = retrieval.Settings(embedding_size=16)
    gallery = retrieval.clustered(500, settings, 1)
    queries = retrieval.clustered(20, settings, 2)
    exact = CONTENDERS["ExactIndex"](gallery)(queries, 5)
    for name in ("ExactIndex float16", "ExactIndex int8"):
        found = CONTENDERS[name](gallery)(queries, 5)
        pairs = zip(found, exact, strict=True)
        shared = np.mean([np.isin(*pair) for pair in pairs])
        assert shared > 0.9, name


def test_both_samplers_give_whole_classes():
    labels = sampler.labels_like_products(FEW)
    sizes = np.bincount(labels)
    assert sizes.min() >= 2 and sizes.max() <= 14 and sizes.sum() == 200
    batches = sampler.grouped_batches(labels, FEW).take(3)
    for batch in batches.as_numpy_iterator():
        assert len(batch) == 8
        pairs = labels[batch].reshape(4, 2)
        assert (pairs[:, 0] == pairs[:, 1]).all()


def test_items_must_fit_the_classes():
    settings = sampler.Settings(num_items=10, num_classes=9)
    with pytest.raises(ValueError, match="2 to 14 times `num_classes`"):
        sampler.labels_like_products(settings)


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
