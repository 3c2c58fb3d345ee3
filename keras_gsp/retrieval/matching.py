"""Match thresholds: up to which distance a neighbor is the same class."""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np

from keras_gsp._checks import check_count, check_interval
from keras_gsp._labels import checked_labels
from keras_gsp.metrics.verification import PairDistances
from keras_gsp.retrieval.space import (
    SpaceFingerprint,
    WithConfig,
    check_same_space,
    space_fingerprint,
)

# Distances computed in another order differ by less than this.
ROUNDING = 1e-6
# Shares of unknown searches that a table of acceptance shows.
RATES = 0.01, 0.02, 0.05, 0.1, 0.2
# Items of a gallery that are read at once.
ID_BLOCK = 4096


@dataclasses.dataclass(frozen=True)
class MatchThreshold(WithConfig):
    """Distance threshold that decides whether a neighbor is a match.

    As the `match` of an index it gives searches `is_match`, and is saved and
    exported. New classes are enrolled by adding their embeddings.

    Calibrated with a gallery, its rates count searches: how often a search
    for an unknown class, or for a known one, has a match at all. Without a
    gallery they count pairs of images, and a search makes a pair with every
    item: of 1,000 items one is near by chance far more often than one of 10.
    Hence the `match` of an index follows its size: see `for_gallery`.

    Args:
        distance: largest Euclidean distance of a match, at least 0.
        false_accept_rate: the chosen share of the searches of unknown classes
            (of the pairs of different classes) that match, in (0, 1).
        true_accept_rate: share of the searches of known classes (of the pairs
            of one class) that match, in [0, 1].
        num_positive_pairs: held-out searches (pairs) of known (one) class.
        num_negative_pairs: held-out searches (pairs) of unknown (two) classes.
        space: `SpaceFingerprint` of the encoder; an index and an export of
            another one refuse the threshold. `None`: unknown.
        gallery_size: items of the gallery. `None`: pairs count.
        acceptance: rows (rate, distance, share of the known, share of the
            unknown searches that match), by rising rate.

    Example:

    ```python
    labels = np.repeat(np.arange(40), 5)
    noise = 0.05 * np.random.default_rng(0).normal(size=(200, 40))
    rows = np.eye(40)[labels] + noise
    index = gsp.retrieval.ExactIndex(rows[:100], labels[:100])
    index.match = gsp.retrieval.MatchThreshold.calibrated(
        rows[100:], labels[100:], gallery=index, false_accept_rate=0.05
    )
    print(index.match.table())
    query = np.eye(40)[[7, 30]]
    assert index.search(query, k=1).is_match.tolist() == [[True], [False]]
    index.add(np.eye(40)[[30]], labels=[30], ids=[100])  # enrolled
    assert index.search(query, k=1).is_match.all()
    ```
    """

    distance: float
    false_accept_rate: float
    true_accept_rate: float
    num_positive_pairs: int
    num_negative_pairs: int
    space: SpaceFingerprint | None = None
    gallery_size: int | None = None
    acceptance: tuple[tuple[float, float, float, float], ...] = ()

    def __post_init__(self) -> None:
        # JSON keeps lists.
        rows = tuple(tuple(row) for row in self.acceptance)
        object.__setattr__(self, "acceptance", rows)
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
        gallery: Any = None,
        false_accept_rate: float | None = None,
        encoder: Any = None,
        seed: int = 0,
    ) -> "MatchThreshold":
        """Finds the largest distance for a rate of false accepts, exactly.

        Args:
            embeddings: (items, size), finite, as in the index, of classes that
                the encoder was not trained on.
            labels: (items,) or (items, 1), numbers or strings; with a gallery
                classes that it does not hold.
            gallery: index that will be searched. Each held-out image is
                searched in it, as one of an unknown class and, beside as many
                others of its class as a class of the gallery has, as one of a
                known class. `None`: the rates count pairs.
            false_accept_rate: share of the searches (pairs) that may match
                falsely, in (0, 1), at least one. `None`: 0.05 of the searches,
                0.001 of the pairs.
            encoder: Keras model that made the embeddings, for the `space`;
                `None`: that of the gallery, or unknown.
            seed: of drawing what stands for a known class.

        Raises:
            TypeError: labels that are neither numbers nor strings.
            ValueError: a rate that allows no search or pair; no pair of one
                class, or of two; a class that the gallery holds.
        """
        if false_accept_rate is None:
            false_accept_rate = 1e-3 if gallery is None else 0.05
        check_interval("(0, 1)", false_accept_rate=false_accept_rate)
        space = space_fingerprint(encoder)
        if gallery is not None:
            found = _searched(
                gallery, embeddings, labels, false_accept_rate, seed
            )
            return cls(**found, space=space or gallery.space)
        pairs = PairDistances(embeddings, labels)
        _check_rate(false_accept_rate, pairs.num_negatives, "negative pairs")
        allowed = math.floor(false_accept_rate * pairs.num_negatives)
        smallest = np.zeros(0, "float32")
        for some in pairs.negatives():
            smallest = np.concatenate([smallest, some], dtype="float32")
            if len(smallest) > allowed:
                smallest = np.partition(smallest, allowed)[: allowed + 1]
        squared = _between(np.sort(smallest), allowed)
        if smallest.max() == 0:
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
            space=space,
        )

    def for_gallery(self, num_items: int) -> "MatchThreshold":
        """Returns the threshold with the same rate in a gallery of this size.

        If p is the chance that one item is a false match, a search of n items
        has one with the chance 1 - (1 - p)^n, for items of other classes. A
        gallery of another size keeps the rate with the distance where the
        measured one has the rate 1 - (1 - rate)^(gallery_size / num_items).
        Beyond what was measured there is a warning, and the distance is the
        smallest or largest of `acceptance`. Pairs do not depend on the size.
        """
        if self.gallery_size in (None, num_items) or not self.acceptance:
            return self
        rows = np.array(self.acceptance)
        growth = num_items / self.gallery_size
        rates, unknown = -np.expm1(growth * np.log1p(-rows[:, [0, 3]])).T
        if not rates[0] <= self.false_accept_rate <= rates[-1]:
            warnings.warn(
                "The size of the gallery is beyond what `match` was calibrated "
                f"for, on {self.num_negative_pairs} searches of "
                f"{self.gallery_size} items. Calibrate it again.",
                stacklevel=3,
            )
        distance, accepted = (
            float(np.interp(np.log(self.false_accept_rate), np.log(rates), one))
            for one in rows[:, 1:3].T
        )
        acceptance = rates, rows[:, 1], rows[:, 2], unknown
        return dataclasses.replace(
            self,
            distance=distance,
            true_accept_rate=accepted,
            gallery_size=int(num_items),
            acceptance=tuple(map(tuple, np.transpose(acceptance).tolist())),
        )

    def is_match(self, distances: Any) -> np.ndarray:
        """Returns which Euclidean distances, of any shape, are a match."""
        return np.asarray(distances) <= self.distance

    def table(self) -> str:
        """Returns `acceptance` as a table in Markdown, for a gallery."""
        if self.gallery_size is None:
            return "Calibrated on pairs; give `gallery` to count searches."
        lines = [
            f"Of searches in a gallery of {self.gallery_size:,} items:",
            "",
            "| distance | known accepted | unknown accepted |",
            "| --- | --- | --- |",
        ]
        rows = np.array(self.acceptance).T
        for rate in sorted({*RATES, self.false_accept_rate}):
            if not rows[0, 0] <= rate <= rows[0, -1]:
                continue
            distance, known, unknown = (
                np.interp(np.log(rate), np.log(rows[0]), one)
                for one in rows[1:]
            )
            cells = f"{distance:.4f}", f"{known:.3f}", f"{unknown:.3f}"
            mark = "**" if rate == self.false_accept_rate else ""
            marked = (f"{mark}{cell}{mark}" for cell in cells)
            lines.append(f"| {' | '.join(marked)} |")
        return "\n".join(lines)


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


def _searched(gallery, embeddings, labels, rate, seed):
    """The arguments of a threshold, from searches in a gallery."""
    labels = checked_labels(labels, len(embeddings))
    gallery._check_filled()
    embeddings = np.asarray(embeddings, "float32")
    ids = gallery.ids()
    blocks = [ids[i : i + ID_BLOCK] for i in range(0, len(ids), ID_BLOCK)]
    present = np.concatenate([gallery.items(block)[1] for block in blocks])
    classes, sizes = np.unique(present, return_counts=True)
    shared = np.intersect1d(classes, labels)
    if len(shared):
        raise ValueError(
            "The held-out classes must not be in the gallery. Received: "
            f"{len(shared)} that are, for example {shared[0].item()!r}."
        )
    unknown = gallery.search(embeddings, 1).distances[:, 0]
    beside = _nearest_of_class(embeddings, labels, sizes, seed)
    known = np.minimum(unknown, beside)[np.isfinite(beside)]
    _check_rate(rate, len(unknown), "held-out searches")
    unknown, count, rows = np.sort(unknown), len(unknown), {}
    # From one search in all to half of them, and the rates that are shown.
    allowed = {k / count: k for k in _rising(count // 2)}
    allowed |= {one: math.floor(one * count) for one in (*RATES, rate)}
    for one in sorted(one for one in allowed if allowed[one]):
        distance = _between(unknown, allowed[one])
        accepted = (np.mean(x <= distance) for x in (known, unknown))
        rows[one] = float(one), distance, *map(float, accepted)
    return {
        "distance": rows[rate][1],
        "false_accept_rate": float(rate),
        "true_accept_rate": rows[rate][2],
        "num_positive_pairs": len(known),
        "num_negative_pairs": len(unknown),
        "gallery_size": len(gallery),
        "acceptance": tuple(rows.values()),
    }


def _rising(most):
    """Numbers up to one, each about a fifth larger than that before."""
    number = 1
    while number <= most:
        yield number
        number = max(number + 1, number * 6 // 5)


def _nearest_of_class(embeddings, labels, sizes, seed):
    """Distance to the nearest of some others of the class; infinity: none.

    They are as many as a class of the gallery, drawn at random, has.
    """
    rng = np.random.default_rng(seed)
    nearest = np.full(len(labels), np.inf)
    drawn = rng.choice(sizes, len(labels))
    codes = np.unique(labels, return_inverse=True)[1]
    for code in range(codes.max() + 1):
        members = np.flatnonzero(codes == code)
        for member in members[: len(members) * (len(members) > 1)]:
            others = rng.permutation(members[members != member])
            rows = embeddings[others[: drawn[member]]].astype("float64")
            gaps = np.linalg.norm(rows - embeddings[member], axis=1)
            nearest[member] = gaps.min()
    return nearest


def _check_rate(rate, count, name):
    if rate * count < 1:
        raise ValueError(
            f"`false_accept_rate` must be at least one of the {name}. "
            f"Received: false_accept_rate={rate} and {count} {name}; hold out "
            f"more images, or choose at least {1 / count:.2g}."
        )


def _between(distances, allowed):
    """A number that so many of the sorted distances reach at most."""
    accepted, refused = map(float, distances[allowed - 1 : allowed + 1])
    # Equal ones are refused together.
    is_tied = accepted == refused
    return accepted * (1 - ROUNDING) if is_tied else (accepted + refused) / 2
