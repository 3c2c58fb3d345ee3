"""Where a pooling looks, and what each prototype stands for."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from training.reports.scored_images import BATCH, ScoredImages, whole_classes
from training.reports.searched import Searched

PATCHES = 8
"""Patches of a prototype, of as many images."""
PROTOTYPES = 24
"""Prototypes that are shown, those with the most mass."""
IMAGES = 1000
"""Images that patches are looked for in, about."""


def pooling_of(encoder: Any, method: str) -> Any:
    """The layer of an encoder that has a method, or None."""
    for layer in reversed(getattr(encoder, "layers", [])):
        if hasattr(layer, method):
            return layer
    return None


def weights_of_images(
    encoder: Any, images: ScoredImages, chosen: list[int]
) -> np.ndarray | None:
    """Pooling weights, (chosen, rows, columns); None without such a pooling."""
    from keras_gsp.models.encoder import features_before

    pooling = pooling_of(encoder, "pooling_weights")
    if pooling is None:
        return None
    features = features_before(encoder, pooling)
    return np.concatenate(
        [
            _array(pooling.pooling_weights(features(pixels, training=False)))
            for pixels in images.batches(chosen)
        ]
    )


def full_weight(encoder: Any, weights: np.ndarray) -> float:
    """The weight of a feature that is pooled wholly.

    A generalized sum pooling that moves the share mu of n features gives none
    more than 1 / (n mu); of other poolings it is the largest weight seen.

    Args:
        encoder: The encoder.
        weights: (images, rows, columns), its weights of some images.
    """
    pooling = pooling_of(encoder, "pooling_weights")
    ratio = getattr(pooling, "transport_ratio", None)
    is_learned = getattr(pooling, "learn_ratio", False)
    if isinstance(ratio, int | float) and not is_learned:
        return 1 / (weights[0].size * ratio)
    return float(weights.max())


def explained_pairs(
    searched: Searched, pairs: list[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], dict[str, np.ndarray]]]:
    """Explains pairs of images.

    Args:
        searched: The search of a run.
        pairs: Positions of queries and neighbors.

    Yields:
        A pair and its `similarity`, `contributions`, `query_maps` and
        `neighbor_maps`; see `gsp.retrieval.Explanation`.

    Raises:
        ValueError: an encoder whose similarity has no such shares.
    """
    import keras_gsp as gsp

    for start in range(0, len(pairs), BATCH):
        some = pairs[start : start + BATCH]
        ones = searched.images.pixels([one for one, _ in some])
        others = searched.images.pixels([other for _, other in some])
        shares = gsp.retrieval.explain(searched.encoder, ones, others)
        for row, pair in enumerate(some):
            yield (
                pair,
                {
                    name: getattr(shares, name)[row]
                    for name in (
                        "similarity",
                        "contributions",
                        "query_maps",
                        "neighbor_maps",
                    )
                },
            )


def prototype_patches(searched: Searched) -> list[dict[str, Any]] | None:
    """The image patches that are nearest to each prototype.

    Near as the pooling measures it: the Euclidean distance of feature and
    prototype after both are projected onto the unit ball. A patch is the
    feature's cell of the image and the cells around it.

    Returns:
        For the prototypes with the most mass, dicts with `prototype`,
        `mass`, its share of all, `patches` (height, width, 3), uint8,
        `images` and `distances`; None without such a pooling, or with
        tokens that lie on no grid.
    """
    from keras_gsp.models.encoder import features_before

    pooling = pooling_of(searched.encoder, "transport_plan")
    if pooling is None:
        return None
    features = features_before(searched.encoder, pooling)
    if len(features.output_shape) != 4:
        return None
    chosen = whole_classes(searched.images.labels, IMAGES)[:IMAGES]
    masses, nearest, cells = [], [], []
    for pixels in searched.images.batches(chosen):
        found = _array(features(pixels, training=False))
        plan = _array(pooling.transport_plan(found))
        masses.append(plan.sum(axis=(1, 2)))
        distances = _ball_distances(found, _array(pooling.prototypes))
        nearest.append(distances.min(axis=1))
        cells.append(distances.argmin(axis=1))
    shape = plan.shape[1:3]
    mass = np.concatenate(masses).mean(axis=0)
    apart, places = np.concatenate(nearest), np.concatenate(cells)
    rows = []
    for prototype in np.argsort(-mass)[:PROTOTYPES].tolist():
        order = np.argsort(apart[:, prototype], kind="stable")[:PATCHES]
        images = chosen[order]
        pixels = searched.images.pixels(images)
        rows.append(
            {
                "prototype": prototype,
                "mass": float(mass[prototype] / mass.sum()),
                "images": images.tolist(),
                "distances": apart[order, prototype].tolist(),
                "patches": [
                    patch(one, cell, shape)
                    for one, cell in zip(
                        pixels, places[order, prototype], strict=True
                    )
                ],
            }
        )
    return rows


def patch(image: np.ndarray, cell: int, shape: tuple[int, int]) -> np.ndarray:
    """A cell of a map laid over an image, and the cells around it.

    Args:
        image: (height, width, 3).
        cell: Which, counted row by row.
        shape: Rows and columns of the map.
    """
    row, column = divmod(int(cell), shape[1])
    spans = []
    for place, count, size in (
        (row, shape[0], image.shape[0]),
        (column, shape[1], image.shape[1]),
    ):
        # At the border as many cells, shifted inwards.
        kept = min(3, count)
        first = int(np.clip(place - 1, 0, count - kept))
        low = round(first * size / count)
        high = max(low + 1, round((first + kept) * size / count))
        spans.append(slice(low, high))
    return image[spans[0], spans[1]]


def _ball_distances(features, prototypes):
    """(images, cells, prototypes), Euclidean in the unit ball."""
    flat = _in_ball(features.reshape(len(features), -1, features.shape[-1]))
    prototypes = _in_ball(prototypes)
    squares = (
        np.square(flat).sum(axis=-1)[..., None]
        + np.square(prototypes).sum(axis=-1)
        - 2 * flat @ prototypes.T
    )
    return np.sqrt(np.maximum(squares, 0))


def _in_ball(vectors):
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, 1)


def _array(values):
    import keras

    return np.asarray(keras.ops.convert_to_numpy(values), "float32")
