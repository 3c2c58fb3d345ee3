"""Shortlists that hold an item of the right class with a chosen probability."""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np

from keras_gsp._checks import check_interval
from keras_gsp._labeled_batches import LabeledBatches, encoded
from keras_gsp.retrieval.held_out_searches import held_out_searches
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.space import (
    SpaceFingerprint,
    WithConfig,
    check_space,
    space_fingerprint,
)


@dataclasses.dataclass(frozen=True)
class RetrievalGuarantee(WithConfig):
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

    for C classes of n_c queries whose nearest item of their class is at s_ci,
    and coverage 1 - a. The class beside the C is the query's own: C must be at
    least 1 / a - 1. Other images (another camera, another kind of class) break
    it. `num_classes` and `num_queries` count what it was calibrated on; `space`
    is the `SpaceFingerprint` of the encoder, `None` if unknown.

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
    hierarchical data", 2023, equation (8). Cai et al., "Risk Controlled Image
    Retrieval", 2023, arXiv 2307.07336, count images, not classes.
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
        gallery; a random class of the gallery makes room for them. An
        approximate engine searches a copy of the index that holds these too.
        If it misses too many, `FaissIndex` is set to look into more clusters,
        with a warning.

        Args:
            encoder: Keras model, as for `ExactIndex.from_encoder`.
            gallery: index of the encoder's embeddings, with labels.
            held_out_classes: images and labels, as for `from_encoder`, of
                classes that neither the training nor the gallery saw. Classes
                with a single image are left out.
            coverage: as for the class, in (0, 1).
            false_alarm_rate: as for the class, in (0, 1).
            batch_size: images embedded at once when arrays are given.
            seed: of the drawing.

        Raises:
            ValueError: an empty gallery or one of another encoder, a class on
                both sides, fewer held-out classes than `classes_needed`, or an
                engine that misses too many items.
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
        former = getattr(gallery, "parameters", None)
        radius = math.inf
        while math.isinf(radius):
            found = held_out_searches(gallery, *held_out, seed)
            radius = class_quantile(
                found.right, found.classes, coverage, "coverage"
            )
            if math.isinf(radius) and gallery._widened() is None:
                gallery._restore(former)
                missed = np.mean(np.isinf(found.right))
                raise ValueError(
                    "`gallery` must find an item of the right class for the "
                    f"promised share of the queries, {coverage}. Received: an "
                    f"engine that misses {missed:.3f} of them; let it search "
                    "more widely."
                )
        if (changed := getattr(gallery, "parameters", None)) != former:
            warnings.warn(
                f"The gallery now searches with parameters={changed!r}: with "
                f"{former!r} it could not hold coverage={coverage}.",
                stacklevel=2,
            )
        return cls(
            radius=radius,
            coverage=float(coverage),
            novelty_distance=class_quantile(
                found.nearest_known,
                found.classes,
                1 - false_alarm_rate,
                "false_alarm_rate",
            ),
            false_alarm_rate=float(false_alarm_rate),
            num_classes=len(np.unique(found.classes)),
            num_queries=len(found.classes),
            space=space_fingerprint(encoder),
        )

    def set_sizes(self, distances: Any) -> np.ndarray:
        """Returns how many neighbors of each query are in its list, (queries,).

        `distances` are (queries, k), as in `Neighbors`; 0: it is declined.
        """
        distances = np.asarray(distances)
        is_known = distances[:, 0] <= self.novelty_distance
        return is_known * np.sum(distances <= self.radius, axis=1)

    def is_covered(self, distances: Any) -> np.ndarray:
        """Returns for which queries the list is whole, booleans (queries,).

        Not for a declined query, nor where all k neighbors are within the
        radius: then search for more.
        """
        sizes = self.set_sizes(distances)
        return (sizes > 0) & ~(np.asarray(distances)[:, -1] <= self.radius)


def classes_needed(level: float) -> int:
    """Returns how many held-out classes a coverage needs: 19 for 0.95."""
    check_interval("(0, 1)", level=level)
    return math.ceil(1 / (1 - level) - 1 - 1e-9)


def class_quantile(
    scores: np.ndarray, classes: np.ndarray, level: float, name: str
) -> float:
    """Returns the smallest score that a share of C + 1 classes stays below."""
    _, codes, counts = np.unique(
        classes, return_inverse=True, return_counts=True
    )
    least = classes_needed(level)
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
