"""The images that runs are scored on, and what an encoder makes of them."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.datasets.image_set import ImageSet, RetrievalSplits
from training.recipes.recipe import Recipe

BATCH = 64
"""Images embedded at once."""


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Queries and what they search, as one numbered set of images.

    Args:
        recipe: Says how images are cut.
        splits: The data set they are from.
        images: Queries, then the gallery where it is another set.
        num_queries: How many of them search.
        notes: Sentences on images that are left out.
    """

    recipe: Recipe
    splits: RetrievalSplits
    images: ImageSet
    num_queries: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> np.ndarray:
        """(images,), class of each."""
        return self.images.labels

    @property
    def gallery_start(self) -> int:
        """Where the gallery begins: 0 where the queries search each other."""
        return 0 if self.num_queries == len(self) else self.num_queries

    @property
    def names(self) -> list[str]:
        """File below the data set, or number, of each image."""
        if self.images.paths is None:
            return [f"test/{i}" for i in range(len(self))]
        return ["/".join(Path(p).parts[-3:]) for p in self.images.paths]

    def class_of(self, image: int) -> str:
        """Name of an image's class."""
        return self.images.class_names[self.labels[image]]

    def batches(self, chosen: Any = None) -> Iterator[np.ndarray]:
        """Pixels as the encoder takes them, some images at a time.

        Args:
            chosen: Positions of images; all by default.

        Yields:
            (batch, height, width, 3), uint8.
        """
        from training.recipes.batches import evaluation_batches

        images = self.images
        if chosen is not None:
            images = _rows(images, np.asarray(chosen, "int64"))
        recipe = replace(self.recipe, cache_features=False)
        for pixels, _ in evaluation_batches(recipe, images, batch_size=BATCH):
            yield np.asarray(pixels)

    def pixels(self, chosen: Any) -> np.ndarray:
        """Pixels of some images, (chosen, height, width, 3), uint8."""
        return np.concatenate(list(self.batches(chosen)))


def scored_images(recipe: Recipe, most: int) -> ScoredImages:
    """Reads the images a recipe is scored on.

    Files that are missing or cannot be decoded are left out with a sentence,
    and of a large set so are whole classes, drawn at random.

    Args:
        recipe: The run's recipe.
        most: How many images to keep about.

    Returns:
        The images.

    Raises:
        FileNotFoundError: the data set is not there.
        ValueError: the data set cannot be meant.
    """
    from training.recipes.data import read_recipe

    recipe = replace(recipe, cache_features=False, corrupt_images="skip")
    notes = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        splits = read_recipe(recipe)
    for warning in caught:
        if "unusable images" in str(warning.message):
            notes.append(str(warning.message))
    queries = splits.test if splits.query is None else splits.query
    images, num_queries = queries, len(queries)
    if splits.gallery is not None:
        images = _joined(queries, splits.gallery)
    images, num_queries = _some_classes(images, num_queries, most, notes)
    return ScoredImages(recipe, splits, images, num_queries, tuple(notes))


def whole_classes(labels: np.ndarray, most: int) -> np.ndarray:
    """Positions of the images of random classes, the same ones every time.

    Args:
        labels: (images,), class of each.
        most: Images to stay below, unless one class has more.
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    sizes = np.bincount(labels)
    order = np.random.default_rng(0).permutation(len(sizes))
    count = max(1, int(np.sum(np.cumsum(sizes[order]) <= most)))
    return np.flatnonzero(np.isin(labels, order[:count]))


def _some_classes(images, num_queries, most, notes):
    kept = whole_classes(images.labels, most)
    if len(kept) == len(images):
        return images, num_queries
    notes.append(
        f"Of {len(images)} images {len(kept)} are looked at, whole classes "
        "drawn at random: scores by class and query are of an easier search "
        "than the run's own."
    )
    return images.subset(kept), int(np.sum(kept < num_queries))


def _joined(one, other):
    if one.paths is not None:
        return ImageSet(
            labels=np.concatenate([one.labels, other.labels]),
            class_names=one.class_names,
            paths=one.paths + other.paths,
        )
    return ImageSet(
        labels=np.concatenate([one.labels, other.labels]),
        class_names=one.class_names,
        images=np.concatenate([one.images, other.images]),
    )


def _rows(images, chosen):
    """Some images, in any order and repeated, their labels no matter."""
    return ImageSet(
        labels=np.zeros(len(chosen), "int64"),
        class_names=("",),
        images=None if images.images is None else images.images[chosen],
        paths=images.paths and tuple(images.paths[i] for i in chosen),
    )
