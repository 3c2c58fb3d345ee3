"""Embed the images that runs are scored on, and search them."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import Recipe

NEIGHBORS = 10
"""Neighbors of each query."""


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Queries and what they search, as one numbered set of images.

    `images` are the queries, then the gallery where it is another set.
    """

    recipe: Recipe
    splits: RetrievalSplits
    images: ImageSet
    num_queries: int
    notes: list[str]

    @property
    def labels(self) -> np.ndarray:
        """`(images,)`, class of each image."""
        return self.images.labels

    @property
    def names(self) -> list[str]:
        """End of each image's path, or its number in a set without files."""
        if self.images.paths is None:
            return [f"test/{i}" for i in range(len(self.images))]
        return ["/".join(Path(p).parts[-3:]) for p in self.images.paths]

    def is_same(self, other: "ScoredImages") -> bool:
        """Whether these are the same queries in the same gallery."""
        return (
            self.num_queries == other.num_queries
            and self.names == other.names
            and np.array_equal(self.labels, other.labels)
        )

    def pixels(self, chosen: list[int]) -> np.ndarray:
        """Images as an encoder takes them, `(chosen, height, width, 3)`."""
        from training.recipes.batches import evaluation_batches

        batches = evaluation_batches(self.recipe, self.images.subset(chosen))
        return np.concatenate([np.asarray(pixels) for pixels, _ in batches])


@dataclass(frozen=True, eq=False)
class Searched:
    """The search of one run.

    `neighbors` are positions of images without the query itself,
    `(queries, k)`; distances are Euclidean; `by_query` maps a measure to
    `(queries,)`, NaN without a positive.
    """

    images: ScoredImages
    encoder: keras.Model
    embeddings: np.ndarray
    neighbors: np.ndarray
    distances: np.ndarray
    by_query: dict[str, np.ndarray]


def scored_images(
    recipe: Recipe, classes: dict[str, list[str]] | None = None
) -> ScoredImages:
    """Reads the images a run is scored on; unusable ones become a note."""
    from training.recipes.data import read_recipe

    recipe = recipe.with_(cache_features=False, corrupt_images="skip")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        splits = read_recipe(recipe)
        if classes is not None:
            splits = splits.of_run(classes)
    notes = [str(warning.message) for warning in caught]
    notes = [text for text in notes if "unusable images" in text]
    if splits.query is None:
        images, count = splits.test, len(splits.test)
    else:
        images, count = _joined(splits.query, splits.gallery), len(splits.query)
    return ScoredImages(recipe, splits, images, count, notes)


def search_all(encoder: keras.Model, images: ScoredImages) -> Searched:
    """Embeds images and searches the neighbors of each query."""
    import keras_gsp as gsp
    from training.runs.scoring import embed

    embeddings = embed(encoder, images.recipe, images.images)
    queries, total = images.num_queries, len(images.images)
    # Where the queries search each other, the gallery is all images.
    start = 0 if queries == total else queries
    gallery, labels = embeddings[start:], images.labels[start:]
    index = gsp.retrieval.ExactIndex(gallery, labels, np.arange(start, total))
    count = min(NEIGHBORS, len(gallery) - (start == 0))
    nearest = index.search(
        embeddings[:queries], count, exclude_ids=np.arange(queries)
    )
    sides: dict[str, Any] = {}
    if start:
        sides = {"gallery_embeddings": gallery, "gallery_labels": labels}
    scores = gsp.metrics.retrieval_scores(
        embeddings[:queries], images.labels[:queries], per_query=True, **sides
    )
    return Searched(
        images=images,
        encoder=encoder,
        embeddings=embeddings,
        neighbors=np.asarray(nearest.ids, "int64"),
        distances=np.asarray(nearest.distances),
        by_query=scores["per_query"],
    )


def _joined(one, other):
    labels = np.concatenate([one.labels, other.labels])
    if one.paths is not None:
        return ImageSet(labels, one.class_names, paths=one.paths + other.paths)
    images = np.concatenate([one.images, other.images])
    return ImageSet(labels, one.class_names, images=images)
