"""Embed the images that runs are scored on, and search them."""

import warnings
from collections.abc import Sequence
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

    `splits` has the validation classes of the recipe. `images` are the
    queries, then the gallery where it is another set. `is_sample` is whether
    whole classes are left out.
    """

    recipe: Recipe
    splits: RetrievalSplits
    images: ImageSet
    num_queries: int
    notes: tuple[str, ...] = ()
    is_sample: bool = False

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> np.ndarray:
        """`(images,)`, class of each image."""
        return self.images.labels

    @property
    def names(self) -> list[str]:
        """End of each image's path, or its number in a set without files."""
        if self.images.paths is None:
            return [f"test/{i}" for i in range(len(self))]
        return ["/".join(Path(p).parts[-3:]) for p in self.images.paths]

    def pixels(self, chosen: Sequence[int]) -> np.ndarray:
        """Returns images as an encoder takes them, `(chosen, ..., 3)`.

        `chosen` are positions in any order.
        """
        from training.recipes.batches import evaluation_batches

        rows, every = np.asarray(chosen, "int64"), self.images
        images = ImageSet(
            # Labels are not read; `subset` would drop repeated images.
            np.zeros(len(rows), "int64"),
            class_names=("",),
            images=None if every.paths else every.images[rows],
            paths=every.paths and [every.paths[i] for i in rows],
        )
        batches = evaluation_batches(self.recipe, images)
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

    @property
    def is_right(self) -> np.ndarray:
        """`(queries, k)`, whether a neighbor is of the query's class."""
        labels = self.images.labels
        return labels[self.neighbors] == labels[: len(self.neighbors), None]


def scored_images(recipe: Recipe, max_images: int) -> ScoredImages:
    """Reads the images a recipe is scored on, about `max_images`.

    Files that are missing or unreadable are left out with a note, and so are
    whole classes of a large set, chosen at random.
    """
    from training.recipes.data import read_recipe

    recipe = recipe.with_(cache_features=False, corrupt_images="skip")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        splits = read_recipe(recipe)
    messages = [str(warning.message) for warning in caught]
    notes = [text for text in messages if "unusable images" in text]
    folds = recipe.validation_folds
    if splits.validation is None and splits.train.num_classes >= folds:
        splits = splits.with_validation(folds, recipe.validation_fold)
    images = splits.test if splits.query is None else splits.query
    num_queries = len(images)
    if splits.gallery is not None:
        images = _joined(images, splits.gallery)
    kept = whole_classes(images.labels, max_images)
    is_sample = len(kept) < len(images)
    if is_sample:
        notes.append(
            f"{len(kept)} of {len(images)} images are used, whole classes "
            "chosen at random: their scores are of an easier search than the "
            "run's own."
        )
        images = images.subset(kept)
        num_queries = int((kept < num_queries).sum())
    return ScoredImages(
        recipe, splits, images, num_queries, tuple(notes), is_sample
    )


def whole_classes(labels: np.ndarray, max_images: int) -> np.ndarray:
    """Returns the positions of all images of random classes.

    The choice is the same every time. `max_images` is the limit, unless the
    first class alone has more.
    """
    if len(labels) <= max_images:
        return np.arange(len(labels))
    sizes = np.bincount(labels)
    order = np.random.default_rng(0).permutation(len(sizes))
    count = max(1, int(np.sum(np.cumsum(sizes[order]) <= max_images)))
    return np.flatnonzero(np.isin(labels, order[:count]))


def search_all(encoder: keras.Model, images: ScoredImages) -> Searched:
    """Embeds images and searches the neighbors of each query."""
    import keras_gsp as gsp
    from training.runs.scoring import embed

    embeddings = embed(encoder, images.recipe, images.images)
    queries = images.num_queries
    # Where the queries search each other, the gallery is all images.
    start = 0 if queries == len(images) else queries
    positions = np.arange(start, len(images))
    gallery, labels = embeddings[start:], images.labels[start:]
    nearest = gsp.retrieval.ExactIndex(gallery, labels, positions).search(
        embeddings[:queries],
        min(NEIGHBORS, len(positions) - (start == 0)),
        exclude_ids=np.arange(queries),
    )
    sides: dict[str, Any] = {}
    if start:
        sides = {"gallery_embeddings": gallery, "gallery_labels": labels}
    scores = gsp.metrics.retrieval_scores(
        embeddings[:queries],
        images.labels[:queries],
        per_query=True,
        **sides,
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
        paths = one.paths + other.paths
        return ImageSet(labels, one.class_names, paths=paths)
    images = np.concatenate([one.images, other.images])
    return ImageSet(labels, one.class_names, images=images)
