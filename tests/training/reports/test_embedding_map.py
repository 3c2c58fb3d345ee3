"""Embeddings in the plane."""

import numpy as np
import pytest

from training.browsing.page_parts import encoded_map
from training.reports.embedding_map import embedding_map
from training.reports.near_duplicates import near_duplicates
from training.reports.page_pictures import sheet_texts
from training.reports.pooling_maps import patch
from training.reports.scored_images import whole_classes


def test_principal_axes_hold_the_most_variance():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(50, 6)) * [9, 5, 1, 1, 1, 1]
    places, words = embedding_map(embeddings, "pca")
    centered = embeddings - embeddings.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centered, full_matrices=False)
    share = (sizes[:2] ** 2).sum() / (sizes**2).sum()
    assert words == f"PCA, {share:.0%} of the variance"
    expected = centered @ axes[:2].T
    for found, wanted in zip(places.T, expected.T, strict=True):
        assert abs(np.corrcoef(found, wanted)[0, 1]) == pytest.approx(1)
    assert np.abs(places).max() == pytest.approx(1)


@pytest.mark.parametrize("shape", [(5, 1), (1, 4), (3, 2)])
def test_few_images_and_axes_have_places_too(shape):
    embeddings = np.random.default_rng(0).normal(size=shape)
    places, _ = embedding_map(embeddings, "pca")
    assert places.shape == (shape[0], 2)
    assert np.isfinite(places).all()


def test_neighbors_stay_neighbors_in_tsne():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    embeddings = 10 * labels[:, None] + rng.normal(size=(40, 5))
    places, words = embedding_map(embeddings, "tsne")
    assert words == "t-SNE, perplexity 13"
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(axis=1)] == labels).all()


def test_classes_are_kept_whole():
    labels = np.repeat(np.arange(10), 7)
    kept = whole_classes(labels, 30)
    assert len(kept) == 28
    assert (np.bincount(labels[kept])[np.unique(labels[kept])] == 7).all()
    assert len(whole_classes(labels, 3)) == 7
    assert len(whole_classes(labels, 70)) == 70


def test_the_same_picture_in_two_classes_comes_first():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (6, 16, 16, 3)).astype("uint8")
    small[1] = small[0]
    small[3] = np.clip(small[2].astype(int) + 3, 0, 255)
    found = near_duplicates(small, np.array([0, 0, 1, 2, 3, 3]))
    assert found["count"] == 2 and found["across"] == 1
    assert [pair["images"] for pair in found["pairs"]] == [[2, 3], [0, 1]]
    assert found["pairs"][0]["difference"] == pytest.approx(3, abs=0.1)


def test_a_patch_is_a_cell_and_its_neighbors():
    image = np.arange(8 * 8).reshape(8, 8)[..., None].repeat(3, axis=2)
    middle = patch(image, cell=1 * 4 + 2, shape=(4, 4))
    np.testing.assert_array_equal(middle, image[0:6, 2:8])
    corner = patch(image, cell=15, shape=(4, 4))
    np.testing.assert_array_equal(corner, image[2:8, 2:8])
    whole = patch(image, cell=0, shape=(1, 1))
    np.testing.assert_array_equal(whole, image)


def test_a_sheet_gets_coarser_until_it_fits():
    tiles = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), "uint8")
    fine, coarse = sheet_texts(tiles, 10**6), sheet_texts(tiles, 1)
    assert (fine["columns"], fine["rows"]) == (40, 2)
    assert len(coarse["picture"]) < len(fine["picture"])


def test_weights_are_bytes_of_a_given_largest_one():
    import base64

    levels = base64.b64decode(
        encoded_map(np.array([[0.0, 0.5], [1.0, 2.0]]), 1)
    )
    assert list(levels) == [0, 128, 255, 255]
