"""Shortlists that hold an item of the right class with a chosen probability.

| symbol | name | meaning |
| --- | --- | --- |
| C | `num_classes` | classes held out to calibrate |
| n_c | | queries of class c |
| s_ci | `scores` | distance of query i of class c to the nearest of its class |
| 1 - a | `coverage` | least probability that the list holds a right item |
"""

import dataclasses
import math
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_batches import LabeledBatches, encoded
from keras_gsp.ops.arguments import check_interval
from keras_gsp.retrieval.index.search_index import SearchIndex, blocks_of
from keras_gsp.retrieval.space import (
    SpaceFingerprint,
    WithSpace,
    check_space,
    space_fingerprint,
)

# Neighbors among which the nearest of another class is looked for.
LOOKED_AT = 50


@dataclasses.dataclass(frozen=True)
class RetrievalGuarantee(WithSpace):
    """Length of a shortlist that holds the right class, and when to abstain.

    The shortlist of a query are the gallery items within `radius`. If the
    gallery holds the query's class, an item of that class is among them with
    a probability of at least `coverage`. A query whose nearest item is
    farther than `novelty_distance` is declined; this happens to at most
    `false_alarm_rate` of the queries whose class the gallery holds.

    Both hold on average over classes, not for each, if the classes of the
    gallery and of the held-out images are drawn alike. Images of one class
    are not independent, hence the quantile is over classes (hierarchical
    conformal prediction),

    ```
    radius = inf { r : sum_c 1/n_c sum_i [s_ci <= r] >= (1 - a) (C + 1) }
    ```

    where the class beside the C is the query's own: C must be at least
    1 / a - 1. Other images (another camera, another kind of class) break it.

    Args:
        radius: largest Euclidean distance of an item in the list.
        coverage: probability, in (0, 1).
        novelty_distance: largest distance of the nearest item.
        false_alarm_rate: probability, in (0, 1).
        num_classes: classes it was calibrated on.
        num_queries: images it was calibrated on.
        space: `SpaceFingerprint` of the encoder, `None` if unknown.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 4)
    images = np.eye(60)[labels] + 0.1 * rng.normal(size=(240, 60))
    encoder = keras.Sequential([keras.Input((60,)), keras.layers.Identity()])
    known = images[:120], labels[:120]
    index = gsp.retrieval.ExactIndex.from_encoder(encoder, known)
    guarantee = gsp.retrieval.RetrievalGuarantee.calibrate(
        encoder, index, (images[120:], labels[120:]), coverage=0.95
    )
    found = index.search(np.eye(60)[[0, 45]], k=20)
    assert guarantee.set_sizes(found.distances)[0] >= 4
    assert guarantee.is_covered(found.distances).tolist() == [True, False]
    ```

    Reference: Lee, Barber and Willett, "Distribution-free inference with
    hierarchical data", 2023, equation (8); Dunn, Wasserman and Ramdas,
    "Distribution-free prediction sets for two-layer hierarchical models",
    2022.
    """

    radius: float
    coverage: float
    novelty_distance: float
    false_alarm_rate: float
    num_classes: int
    num_queries: int
    space: SpaceFingerprint | None = None

    def __post_init__(self) -> None:
        check_interval("(0, 1)", coverage=self.coverage)
        check_interval("(0, 1)", false_alarm_rate=self.false_alarm_rate)
        check_interval("[0, inf)", radius=self.radius)
        check_interval("[0, inf)", novelty_distance=self.novelty_distance)

    @classmethod
    def calibrate(
        cls,
        encoder: Any,
        gallery: SearchIndex,
        held_out_classes: Any,
        coverage: float = 0.95,
        *,
        false_alarm_rate: float = 0.05,
        batch_size: int = 64,
        seed: int = 0,
    ) -> "RetrievalGuarantee":
        """Finds both distances on classes that nothing was trained on.

        Each held-out image is a query. As many others of its class as a class
        of the gallery has, drawn at random, stand for its class in the
        gallery; a random class of the gallery makes room for them.

        Args:
            encoder: Keras model, as for `ExactIndex.from_encoder`.
            gallery: index of the encoder's embeddings, with labels.
            held_out_classes: images and labels, as for `from_encoder`, of
                classes that neither the training nor the gallery saw. Classes
                with a single image are left out.
            coverage: least probability that a list holds an item of the
                query's class, in (0, 1). Default 0.95.
            false_alarm_rate: largest probability that a query is declined
                whose class the gallery holds, in (0, 1). Default 0.05.
            batch_size: images embedded at once when arrays are given.
            seed: seed of the drawing. Default 0.

        Raises:
            ValueError: an empty gallery or one of another encoder, a class on
                both sides, too few held-out classes for the coverage or the
                rate, or a rate out of its range.
        """
        check_interval("(0, 1)", coverage=coverage)
        check_interval("(0, 1)", false_alarm_rate=false_alarm_rate)
        if not len(gallery):
            raise ValueError(
                "`gallery` must hold items. Received: an empty index."
            )
        check_space(encoder, gallery, "gallery")
        data = LabeledBatches(held_out_classes, "held_out_classes", batch_size)
        held_out = encoded(encoder, data)
        classes, right, nearest = class_scores(gallery, *held_out, seed)
        return cls(
            radius=class_quantile(right, classes, coverage, "coverage"),
            coverage=float(coverage),
            novelty_distance=class_quantile(
                nearest, classes, 1 - false_alarm_rate, "false_alarm_rate"
            ),
            false_alarm_rate=float(false_alarm_rate),
            num_classes=len(np.unique(classes)),
            num_queries=len(classes),
            space=space_fingerprint(encoder),
        )

    def set_sizes(self, distances: Any) -> np.ndarray:
        """Returns how many neighbors of each query are in its list.

        Args:
            distances: (queries, k), as in `Neighbors`.

        Returns:
            (queries,), integers; 0 for a query that is declined.
        """
        distances = np.asarray(distances)
        is_known = distances[:, 0] <= self.novelty_distance
        return is_known * np.sum(distances <= self.radius, axis=1)

    def is_covered(self, distances: Any) -> np.ndarray:
        """Returns for which queries the list is whole, booleans (queries,).

        Not for a declined query, nor where all k neighbors are within the
        radius: then search for more. `distances` as for `set_sizes`.
        """
        sizes = self.set_sizes(distances)
        return (sizes > 0) & ~(np.asarray(distances)[:, -1] <= self.radius)


def class_scores(
    gallery: SearchIndex, embeddings: Any, labels: Any, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes of held-out queries, distance to their class and to any item."""
    blocks = [gallery.items(some)[1] for some in blocks_of(gallery.ids())]
    known, sizes = np.unique(np.concatenate(blocks), return_counts=True)
    shared = np.intersect1d(known, labels)
    if len(shared):
        raise ValueError(
            "`held_out_classes` must not be in the gallery. Received: "
            f"{len(shared)} that are, for example {shared[0].item()!r}."
        )
    rng = np.random.default_rng(seed)
    names, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    right = np.full(len(labels), np.inf)
    shown = rng.choice(sizes, len(labels))
    for code in np.flatnonzero(counts > 1):
        members = np.flatnonzero(codes == code)
        own = embeddings[members].astype("float64")
        distances = np.linalg.norm(own[:, None] - own, axis=2)
        # Of the others, in a random order, as many as the gallery would show.
        order = rng.random(distances.shape)
        np.fill_diagonal(order, np.inf)
        np.fill_diagonal(distances, np.inf)
        ranks = order.argsort(axis=1).argsort(axis=1)
        distances[ranks >= shown[members][:, None]] = np.inf
        right[members] = distances.min(axis=1)
    found = gallery.search(embeddings, LOOKED_AT)
    left = rng.choice(known, len(labels))[:, None]
    far = np.where(found.labels == left, np.inf, found.distances).min(axis=1)
    is_query = counts[codes] > 1
    nearest = np.minimum(right, far)
    return names[codes][is_query], right[is_query], nearest[is_query]


def class_quantile(
    scores: np.ndarray, classes: np.ndarray, level: float, name: str
) -> float:
    """Returns the smallest score that a share of C + 1 classes stays below.

    Each class weighs the same; `name` is that of the level in the error.
    """
    _, codes, counts = np.unique(
        classes, return_inverse=True, return_counts=True
    )
    least = math.ceil(1 / (1 - level) - 1 - 1e-9)
    if len(counts) < least:
        raise ValueError(
            f"`held_out_classes` must hold at least {least} classes with two "
            f"images for this `{name}`. Received: {len(counts)}. Hold out "
            "more classes, or ask for less."
        )
    order = np.argsort(scores)
    weights = np.cumsum((1 / counts)[codes[order]])
    # Sums of fractions end below whole numbers.
    place = np.searchsorted(weights, level * (len(counts) + 1) - 1e-9)
    return float(scores[order[min(int(place), len(order) - 1)]])
