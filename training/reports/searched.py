"""Embed the images that runs are scored on, search them, draw the answers."""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.pictures.framed_image import draw_image
from training.pictures.palette import BLACK, BLUE, VERMILION, picture
from training.pictures.pooling_weights import pooling_layer, pooling_weights
from training.recipes.recipe import Recipe

SHOWN = 3  # good queries, and bad ones, that the page shows
NEIGHBORS = 6  # beside each query
TILE = 1.4  # side of an image, inches


@dataclass(frozen=True, eq=False)
class Searched:
    """The search of one run.

    `images` begin with the queries; a gallery that is another set follows.
    `neighbors` are positions of images without the query itself,
    `(queries, k)`; distances are Euclidean; `scores` are the MAP@R of each
    query, NaN without a positive.
    """

    recipe: Recipe
    images: Any
    encoder: Any
    neighbors: np.ndarray
    distances: np.ndarray
    scores: np.ndarray

    @property
    def classes(self) -> np.ndarray:
        """Class of each query, `(queries,)`."""
        return self.images.labels[: len(self.neighbors)]


def read_scored(
    recipe: Recipe, classes: dict[str, list[str]] | None
) -> tuple[RetrievalSplits, list[str]]:
    """Reads the images a run is scored on, and notes about unusable ones."""
    from training.recipes.data import read_recipe

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        splits = read_recipe(
            recipe.with_(cache_features=False, corrupt_images="skip")
        )
        if classes is not None:
            splits = splits.of_run(classes)
    notes = [str(warning.message) for warning in caught]
    return splits, [text for text in notes if "unusable images" in text]


def search_all(encoder: Any, recipe: Recipe, splits: Any) -> Searched:
    """Embeds images and searches the neighbors of each query."""
    import keras_gsp as gsp
    from training.runs.scoring import embed, side_scores

    recipe, images = recipe.with_(cache_features=False), splits.test
    rows = {"test": embed(encoder, recipe, images)}
    queries = gallery = range(len(images))
    if splits.query is not None:
        # Test images are the queries, then the gallery.
        queries = range(len(splits.query))
        gallery = range(len(queries), len(queries) + len(splits.gallery))
        rows |= {"query": rows["test"][queries]}
        rows |= {"gallery": rows["test"][gallery]}
    index = gsp.retrieval.ExactIndex(
        rows["test"][gallery], images.labels[gallery], np.array(gallery)
    )
    nearest = index.search(
        rows["test"][queries],
        min(NEIGHBORS, len(gallery) - (queries == gallery)),
        exclude_ids=np.array(queries),
    )
    scores = side_scores(rows, splits.sides())["per_query"]
    return Searched(
        recipe=recipe,
        images=images,
        encoder=encoder,
        neighbors=np.asarray(nearest.ids, "int64"),
        distances=np.asarray(nearest.distances),
        scores=np.asarray(scores["map_at_r"]),
    )


def chosen_queries(shown: Sequence[Searched]) -> dict[str, list[int]]:
    """Chooses good and bad queries of the last search, one of each class.

    Of equal successes those that gain most over the first search.
    """
    first, last = shown[0], shown[-1]
    scores = last.scores
    gains = scores - first.scores
    good = _of_each_class(last, np.lexsort((-gains, -scores)))[:SHOWN]
    worst = _of_each_class(last, np.argsort(scores, kind="stable"))
    bad = [q for q in worst if scores[q] < 1 and q not in good]
    return {"Right first": good, "Wrong first": bad[:SHOWN]}


def _of_each_class(search, order):
    chosen: dict[int, int] = {}
    for query in order.tolist():
        if not np.isnan(search.scores[query]):
            chosen.setdefault(int(search.classes[query]), query)
    return list(chosen.values())


def draw_queries(searched: Searched, queries: Sequence[int]) -> io.BytesIO:
    """Draws queries and their neighbors, veiled where nothing is pooled.

    A solid frame is the query's class, a dashed one is another.
    """
    from training.recipes.batches import evaluation_batches

    rows = np.column_stack([queries, searched.neighbors[queries]])
    chosen, positions = np.unique(rows, return_inverse=True)
    batches = evaluation_batches(
        searched.recipe, searched.images.subset(chosen)
    )
    pixels = np.concatenate([np.asarray(pixels) for pixels, _ in batches])
    weights: Any = [None] * len(pixels)
    if pooling_layer(searched.encoder) is not None:
        found = pooling_weights(searched.encoder, pixels.astype("uint8"))
        weights = found if found.ndim == 3 else weights
    labels, names = searched.images.labels, searched.images.class_names
    drawn = io.BytesIO()
    height, width = rows.shape
    size = (TILE * width, (TILE + 0.45) * height)
    with picture(drawn, height, width, figsize=size) as axes:
        for place, position in enumerate(positions.reshape(-1)):
            (row, rank), image = divmod(place, width), rows.flat[place]
            is_right = labels[image] == labels[queries[row]]
            title = names[labels[image]][:18]
            if rank:
                distance = searched.distances[queries[row], rank - 1]
                title = f"{title}\n{distance:.2f}"
            draw_image(
                axes[row, rank],
                pixels[position].astype("uint8"),
                weights[position],
                title,
                BLACK if not rank else BLUE if is_right else VERMILION,
                3,
                "-" if is_right else "--",
            )
    return drawn
