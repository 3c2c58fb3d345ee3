"""The tracked export answers, and its recipe and weights rebuild it."""

import pathlib

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.storage.checksums import verify_checksums

FOLDER = pathlib.Path(__file__).parents[2] / "saved_models" / "glyphs"
# Another machine rounds the sums of its convolutions differently.
TOLERANCE = 1e-4
# Image of the test classes that is not in the gallery.
QUERY = 1991


def test_it_is_complete_and_small():
    verify_checksums(FOLDER)
    size = sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file())
    assert size <= 4_000_000


@pytest.mark.slow
def test_its_recipe_and_weights_rebuild_it():
    tf = pytest.importorskip("tensorflow")
    from training.datasets import glyphs
    from training.recipes.learner import build_recipe_encoder
    from training.recipes.recipe import Recipe
    from training.search import ExportSearch

    search = ExportSearch(FOLDER)
    pictures, ids = search.images, search.ids
    rendered = glyphs.load().test
    # The first four images of each class.
    _, starts = np.unique(rendered.labels, return_index=True)
    rows = (starts[:, None] + np.arange(4)).ravel()
    # Versions of Pillow draw edges a few levels apart.
    drawn = rendered.images[rows].astype(int)
    assert np.abs(pictures - drawn).mean() < 0.1
    facts = search.metadata
    # Its weights are assigned below.
    recipe = Recipe.from_settings(facts["recipe"] | {"backbone_weights": None})
    encoder = build_recipe_encoder(recipe, tuple(facts["image_shape"]))
    saved = tf.saved_model.load(str(FOLDER)).encoder_variables
    for own, weights in zip(encoder.variables, saved, strict=True):
        own.assign(weights)
    embeddings = encoder.predict(pictures, verbose=0)["embedding"]
    names = np.array(rendered.class_names)[rendered.labels[rows]]
    index = gsp.retrieval.ExactIndex(embeddings, names, ids)
    queries = [0, 57, len(ids) - 1]
    found = search.search([search.image(ids[row]) for row in queries])
    expected = index.search(embeddings[queries], found["ids"].shape[1])
    np.testing.assert_allclose(
        found["distances"], expected.distances, atol=TOLERANCE
    )
    nearest = found["ids"][:, 0].astype(str)
    assert nearest.tolist() == [ids[row] for row in queries]
    query = gsp.data.decode_image((FOLDER.parent / "query.png").read_bytes())
    drawn = rendered.images[QUERY].astype(int)
    assert np.abs(query - drawn).mean() < 0.1
    threshold = facts["match_threshold"]["distance"]
    np.testing.assert_array_equal(
        found["is_match"], found["distances"] <= threshold
    )
