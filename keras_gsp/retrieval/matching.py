"""Match or no match: the distance up to which two items are of one class."""

import dataclasses
import math
from typing import Any

import numpy as np

from keras_gsp.metrics.pair_distances import PairDistances

# A distance computed again in another order differs by less than this.
ROUNDING = 1e-6
# Values of half the bits of a float32.
HALF = 2**16


@dataclasses.dataclass(frozen=True)
class MatchThreshold:
    """Tells whether a neighbor is of the query's class, or just the nearest.

    A search always finds a nearest item, also for a query of a class that the
    gallery does not hold. It is a match when its distance is at most
    `distance`, a threshold that `calibrated` finds on held-out pairs for a
    chosen rate of false accepts. The threshold belongs to the encoder, not to
    a gallery: a new class is enrolled by adding its embeddings to the index,
    without training and without calibrating again. An index keeps it as its
    `match`: searches then answer `is_match`, and `save` and
    `export_retriever` write it beside the gallery.

    Args:
        distance: Euclidean distance, at least 0, up to which it is a match.
        false_accept_rate: the rate that was chosen, in (0, 1): share of the
            pairs of two classes that are taken for a match.
        true_accept_rate: share of the held-out pairs of one class that match
            at this distance, in [0, 1].
        num_positive_pairs: held-out pairs of one class, at least 1.
        num_negative_pairs: held-out pairs of two classes, at least 1.

    Raises:
        ValueError: a number outside its range.

    Example:

    ```python
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 5)
    held_out = np.eye(20)[labels] + 0.05 * rng.normal(size=(100, 20))
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

    def __post_init__(self) -> None:
        if not (math.isfinite(self.distance) and self.distance >= 0):
            raise ValueError(
                "`distance` must be finite and at least 0. "
                f"Received: distance={self.distance}."
            )
        _check_false_accept_rate(self.false_accept_rate)
        if not 0 <= self.true_accept_rate <= 1:
            raise ValueError(
                "`true_accept_rate` must be in [0, 1]. "
                f"Received: true_accept_rate={self.true_accept_rate}."
            )
        for name in ("num_positive_pairs", "num_negative_pairs"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. "
                    f"Received: {name}={getattr(self, name)}."
                )

    @classmethod
    def calibrated(
        cls,
        embeddings: Any,
        labels: Any,
        *,
        false_accept_rate: float = 1e-3,
        gallery_embeddings: Any = None,
        gallery_labels: Any = None,
        block_size: int | None = None,
    ) -> "MatchThreshold":
        """Finds the largest distance that keeps a rate of false accepts.

        Take embeddings of classes that the encoder was not trained on: on its
        training classes it separates better than it will later.

        The rate is of pairs. A query of an unknown class is compared with
        every item of a gallery of n and meets up to n chances of a false
        accept: for one false match in 100 such searches choose about 0.01 / n.

        Args:
            embeddings: (items, size), finite, as the index gets them.
            labels: (items,) or (items, 1), numbers or strings.
            false_accept_rate: share of the pairs of two classes that may be
                taken for a match, in (0, 1). The number of these pairs must
                be at least its inverse. Default 0.001.
            gallery_embeddings: (gallery, size), finite. Default `None`: the
                items are compared with each other, each pair once.
            gallery_labels: (gallery,) or (gallery, 1). Given exactly when
                `gallery_embeddings` is.
            block_size: see `gsp.metrics.verification_scores`.

        Returns:
            A `MatchThreshold`; exact, whatever the number of pairs.

        Raises:
            TypeError: labels that are neither numbers nor strings.
            ValueError: a rate outside (0, 1) or too small for so few pairs;
                no pair of one class, or none of two; embeddings that are not
                finite.
        """
        _check_false_accept_rate(false_accept_rate)
        pairs = PairDistances(
            embeddings, labels, gallery_embeddings, gallery_labels, block_size
        )
        allowed = math.floor(false_accept_rate * pairs.num_negatives)
        if allowed < 1:
            raise ValueError(
                "`false_accept_rate` must be at least one of the pairs of two "
                f"classes. Received: false_accept_rate={false_accept_rate} and "
                f"{pairs.num_negatives} pairs; hold out more items, or choose "
                f"at least {1 / pairs.num_negatives:.2g}."
            )
        accepted, refused = _neighboring_negatives(pairs, allowed)
        if accepted < refused:
            squared = (accepted + refused) / 2
        else:
            squared = accepted * (1 - ROUNDING)
        if refused == 0:
            raise ValueError(
                "The pairs of two classes must differ. Received: more than "
                f"{allowed} of {pairs.num_negatives} pairs are identical, "
                "more than the rate allows at any distance."
            )
        return cls(
            distance=math.sqrt(squared) / pairs.scale,
            false_accept_rate=float(false_accept_rate),
            true_accept_rate=float(np.mean(pairs.positives() <= squared)),
            num_positive_pairs=pairs.num_positives,
            num_negative_pairs=pairs.num_negatives,
        )

    def is_match(self, distances: Any) -> np.ndarray:
        """Tells which neighbors are matches.

        Args:
            distances: Euclidean distances of any shape, as `Neighbors` holds
                them; infinity, for no neighbor, is no match.

        Returns:
            Booleans of that shape.
        """
        return np.asarray(distances) <= self.distance

    def get_config(self) -> dict[str, float | int]:
        """Returns the arguments as plain numbers, for a JSON file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MatchThreshold":
        """Makes the threshold that `get_config` described."""
        return cls(**config)


def checked_match(match: Any) -> MatchThreshold | None:
    """Returns a threshold or `None`, refusing what is neither.

    Raises:
        TypeError: anything else.
    """
    if match is None or isinstance(match, MatchThreshold):
        return match
    raise TypeError(
        f"`match` must be a MatchThreshold or None. Received: match={match!r}."
    )


def _neighboring_negatives(pairs, allowed):
    """Squared distances of the last negative accepted and the next one.

    Their places in the order of all negatives are found digit by digit: a
    count of the upper halves of the floats' bits, then one of the lower halves
    of those that share the upper half. Bits of floats of one sign are in the
    order of the floats.
    """
    ranks = np.array([allowed, allowed + 1])
    counts = np.zeros(HALF, "int64")
    for bits in _negative_bits(pairs):
        counts += np.bincount(bits >> 16, minlength=HALF)
    uppers, ranks = _digits(counts, ranks)
    of_upper = {upper: np.zeros(HALF, "int64") for upper in set(uppers)}
    for bits in _negative_bits(pairs):
        for upper, found in of_upper.items():
            digits = bits[bits >> 16 == upper] & (HALF - 1)
            found += np.bincount(digits, minlength=HALF)
    lowers = [
        _digits(of_upper[upper], np.array([rank]))[0][0]
        for upper, rank in zip(uppers, ranks, strict=True)
    ]
    bits = np.array(uppers) * HALF + np.array(lowers)
    return bits.astype("uint32").view("float32").astype("float64").tolist()


def _negative_bits(pairs):
    for _, pieces in pairs.blocks():
        for piece in pieces:
            yield piece.astype("float32", copy=False).view("uint32")


def _digits(counts, ranks):
    """The digit of each rank (from 1), and its rank among the digit's."""
    reached = np.cumsum(counts)
    digits = np.searchsorted(reached, ranks)
    return digits.tolist(), ranks - (reached - counts)[digits]


def _check_false_accept_rate(rate):
    if not 0 < rate < 1:
        raise ValueError(
            "`false_accept_rate` must be in (0, 1). "
            f"Received: false_accept_rate={rate}."
        )
