"""What TFDS has prepared is read in place of the original layout."""

import pytest

from training.datasets import published, tfds_source

tfds = pytest.importorskip("tensorflow_datasets")

pytestmark = pytest.mark.usefixtures("cache")


def test_a_folder_without_it_needs_the_original_layout(tmp_path):
    assert not tfds_source.is_prepared("inshop", tmp_path)
    with pytest.raises(FileNotFoundError, match="CUB-200-2011"):
        published.published_splits("cub", tmp_path)
    (tmp_path / "caltech_birds2011").mkdir()
    with pytest.raises(Exception, match="caltech_birds2011"):
        published.published_splits("cub", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cub", "cars"])
def test_encoded_images_become_files(name, tmp_path):
    (tmp_path / tfds_source.SOURCES[name][0]).mkdir()
    assert tfds_source.is_prepared(name, tmp_path)
    with tfds.testing.mock_data(num_examples=5):
        found, again = (
            tfds_source.tfds_images(name, tmp_path) for _ in range(2)
        )
    # Five images in each of its two splits.
    assert len(set(found.paths)) == len(found) == 10
    assert len(found.readable()) == len(found)
    assert found.paths == again.paths
    assert found.names.tolist() == again.names.tolist()


@pytest.mark.slow
def test_splits_by_class_are_kept(tmp_path):
    # The made-up products are in both of its splits.
    with (
        tfds.testing.mock_data(num_examples=5),
        pytest.raises(ValueError, match="of sop must have no class in common"),
    ):
        tfds_source.tfds_images("sop", tmp_path)
