"""Match thresholds: the largest distance within a class."""

import dataclasses
import math
from typing import Any

import numpy as np

from keras_gsp.metrics.pair_distances import PairDistances
from keras_gsp.ops.arguments import check_count, check_interval
from keras_gsp.retrieval.space import (
    SpaceFingerprint,
    WithSpace,
    check_same_space,
    space_fingerprint,
)

# Distances computed in another order differ by less than this.
ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class MatchThreshold(WithSpace):
    """Distance threshold that decides whether a neighbor is a match.

    A search also returns neighbors for a query of a class that the gallery
    does not hold; a match is at a distance of at most `distance`. As the
    `match` of an index it gives searches `is_match`, and is saved and
    exported. New classes are enrolled by adding their embeddings.

    Args:
        distance: largest Euclidean distance of a match, at least 0.
        false_accept_rate: the chosen share of the pairs of different classes
            that match, in (0, 1).
        true_accept_rate: share of the pairs of one class that match, in [0, 1].
        num_positive_pairs: held-out pairs of one class, at least 1.
        num_negative_pairs: held-out pairs of different classes, at least 1.
        space: `SpaceFingerprint` of the encoder; an index and an export of
            another one refuse the threshold. Default `None`: unknown.

    Raises:
        ValueError: a number outside its range.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    labels = np.repeat(np.arange(20), 5)
    noise = 0.05 * np.random.default_rng(0).normal(size=(100, 20))
    held_out = np.eye(20)[labels] + noise
    threshold = gsp.retrieval.MatchThreshold.calibrated(
        held_out, labels, false_accept_rate=0.01
    )
    index = gsp.retrieval.ExactIndex(
        np.eye(20)[:2], labels=["cat", "dog"], match=threshold
    )
    query = np.eye(20)[[7]]
    assert not index.search(query, k=1).is_match.any()
    index.add(np.eye(20)[[7]], labels=["cow"], ids=[2])  # enrolled
    assert index.search(query, k=1).is_match.all()
    ```
    """

    distance: float
    false_accept_rate: float
    true_accept_rate: float
    num_positive_pairs: int
    num_negative_pairs: int
    space: SpaceFingerprint | None = None

    def __post_init__(self) -> None:
        check_interval("(0, 1)", false_accept_rate=self.false_accept_rate)
        check_interval("[0, inf)", distance=self.distance)
        check_interval("[0, 1]", true_accept_rate=self.true_accept_rate)
        check_count(
            num_positive_pairs=self.num_positive_pairs,
            num_negative_pairs=self.num_negative_pairs,
        )

    @classmethod
    def calibrated(
        cls,
        embeddings: Any,
        labels: Any,
        *,
        false_accept_rate: float = 1e-3,
        encoder: Any = None,
    ) -> "MatchThreshold":
        """Finds the largest distance for a rate of false accepts, exactly.

        Use embeddings of classes that the encoder was not trained on: it
        separates its training classes better. The rate counts pairs, and a
        query of an unknown class makes n pairs with a gallery of n items: for
        one false match in 100 such searches choose about 0.01 / n.

        Args:
            embeddings: (items, size), finite, as in the index.
            labels: (items,) or (items, 1), numbers or strings.
            false_accept_rate: share of the pairs of different classes that
                may match, in (0, 1), at least one pair. Default 0.001.
            encoder: Keras model that made the embeddings, for the `space`.
                Default `None`: unknown.


        Raises:
            TypeError: labels that are neither numbers nor strings.
            ValueError: a rate outside (0, 1) or below one pair; no pair of
                one class, or none of different classes; embeddings that are
                not finite.
        """
        check_interval("(0, 1)", false_accept_rate=false_accept_rate)
        pairs = PairDistances(embeddings, labels)
        allowed = math.floor(false_accept_rate * pairs.num_negatives)
        if allowed < 1:
            raise ValueError(
                "`false_accept_rate` must be at least one of the pairs of "
                "different classes. Received: "
                f"false_accept_rate={false_accept_rate} and "
                f"{pairs.num_negatives} pairs; hold out more items, or choose "
                f"at least {1 / pairs.num_negatives:.2g}."
            )
        nearest = _smallest_negatives(pairs, allowed + 1).astype("float64")
        accepted, refused = np.partition(nearest, allowed - 1)[-2:]
        squared = (accepted + refused) / 2
        if accepted == refused:
            squared = accepted * (1 - ROUNDING)
        if refused == 0:
            raise ValueError(
                "Embeddings of different classes must differ. Received: more "
                f"than {allowed} of {pairs.num_negatives} pairs are identical, "
                "more than the rate allows at any distance."
            )
        return cls(
            distance=math.sqrt(squared) / pairs.scale,
            false_accept_rate=float(false_accept_rate),
            true_accept_rate=float(np.mean(pairs.positives() <= squared)),
            num_positive_pairs=pairs.num_positives,
            num_negative_pairs=pairs.num_negatives,
            space=space_fingerprint(encoder),
        )

    def is_match(self, distances: Any) -> np.ndarray:
        """Returns which Euclidean distances, of any shape, are a match."""
        return np.asarray(distances) <= self.distance


def checked_match(
    match: Any, space: SpaceFingerprint | None = None
) -> MatchThreshold | None:
    """Returns a threshold or `None`, unless it is of another `space`."""
    if not isinstance(match, MatchThreshold | None):
        raise TypeError(
            "`match` must be a MatchThreshold or None. "
            f"Received: match={match!r}."
        )
    if match is not None:
        check_same_space(match.space, space, "match")
    return match


def _smallest_negatives(pairs, count):
    """Squared distances of the nearest pairs of different classes, float32."""
    smallest = np.zeros(0, "float32")
    for some in pairs.negatives():
        smallest = np.concatenate([smallest, some], dtype="float32")
        if len(smallest) > count:
            smallest = np.partition(smallest, count - 1)[:count]
    return smallest
