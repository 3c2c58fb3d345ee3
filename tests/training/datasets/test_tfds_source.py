"""TFDS as a second source: offline it fails at once, prepared it is read."""

import socket

import pytest

import keras_gsp as gsp
from tests.training.datasets import layouts
from training.datasets import prepare, tfds_source
from training.datasets.tfds_source import SOURCES, tfds_splits

tfds = pytest.importorskip("tensorflow_datasets")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("KERAS_GSP_CACHE", str(folder))


@pytest.fixture
def offline(monkeypatch):
    def refuse(*arguments, **settings):
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.mark.parametrize("dataset", sorted(SOURCES))
def test_what_is_not_prepared_fails_at_once(tmp_path, dataset, offline):
    with pytest.raises(FileNotFoundError, match="Looked in: "):
        tfds_splits(dataset, tmp_path)


def test_a_download_without_a_network_fails_at_once(tmp_path, offline):
    with pytest.raises(ConnectionError, match="cifar10"):
        tfds_splits("cifar10", tmp_path, download=True)


def test_in_shop_is_prepared_from_its_original_layout(tmp_path):
    root = layouts.in_shop(tmp_path / "original")
    counts = {"train": 9, "query": 4, "gallery": 2, "test": 6}
    first, again = (
        tfds_splits("inshop", tmp_path / "tfds", expected=counts, **where)
        for where in ({"manual_dir": root}, {})
    )
    assert first.query.paths == again.query.paths
    assert first.query.class_names == first.gallery.class_names
    original = {path.read_bytes() for path in root.rglob("*.jpg")}
    with open(first.gallery.paths[0], "rb") as file:
        assert file.read() in original


def test_the_command_says_what_to_do_offline(tmp_path, offline):
    with pytest.raises(SystemExit, match="prepare cars` and --download"):
        prepare.main(["cars", "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit, match="A network must be there"):
        prepare.main(["cars", "--data-dir", str(tmp_path), "--download"])


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
