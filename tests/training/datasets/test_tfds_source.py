"""TFDS as a second source: offline it fails at once, prepared it is read."""

import pytest

import keras_gsp as gsp
from training.datasets import tfds_source
from training.datasets.tfds_source import SOURCES, tfds_splits

tfds = pytest.importorskip("tensorflow_datasets")


pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("dataset", sorted(SOURCES))
def test_what_is_not_prepared_fails_at_once(tmp_path, dataset):
    with pytest.raises(FileNotFoundError, match="Looked in: .*`tfds build "):
        tfds_splits(dataset, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["cifar10", "mnist"])
def test_small_images_come_into_memory(monkeypatch, dataset):
    with tfds.testing.mock_data(num_examples=60):
        builder = tfds.builder(SOURCES[dataset][0])
        monkeypatch.setattr(tfds_source, "_prepared", lambda *_: builder)
        splits = tfds_splits(dataset, expected=None)
    assert splits.train.images.shape[-1] == 3
    assert len(splits.train) + len(splits.test) == 120


@pytest.mark.slow
def test_large_images_become_files():
    with tfds.testing.mock_data(num_examples=5):
        builder = tfds.builder("stanford_online_products")
        images, again = (
            tfds_source._image_set(builder, ["train", "test"], "class_id")
            for _ in range(2)
        )
    assert len(set(images.paths)) == len(images) == 10
    assert images.paths == again.paths
    assert gsp.data.readable_images(images.paths).skipped == {}
