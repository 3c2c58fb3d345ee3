"""Maps from one embedding space to another, fitted and certified by class.

| name | map of x, from the pairs X, Y |
| --- | --- |
| `"procrustes"` | x U V, with X^T Y = U S V: the nearest rotation |
| `"ridge"` | (x - mean X) W + mean Y, least squares with a penalty |
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.metrics.retrieval import retrieval_scores

KINDS = "procrustes", "ridge"
# Of the mean variance of the coordinates.
PENALTY = 1e-2
LEAST_CLASSES = 12


@dataclasses.dataclass(frozen=True)
class SpaceMap:
    """Maps x to (x - middle) weights + goal, of length 1 if `is_unit`."""

    kind: str
    middle: Any
    weights: np.ndarray
    goal: Any
    is_unit: bool

    @classmethod
    def fitted(
        cls, kind: str, source: np.ndarray, target: np.ndarray
    ) -> "SpaceMap":
        """Fits a map from embeddings of the same items in two spaces."""
        lengths = np.linalg.norm(target, axis=1)
        is_unit = bool(np.allclose(lengths, 1.0, atol=1e-3))
        source, target = source.astype("float64"), target.astype("float64")
        if kind == "procrustes":
            left, _, right = np.linalg.svd(source.T @ target, False)
            return cls(kind, 0.0, left @ right, 0.0, is_unit)
        middle, goal = source.mean(axis=0), target.mean(axis=0)
        rows = source - middle
        gram = rows.T @ rows
        gram += PENALTY * np.trace(gram) / len(gram) * np.eye(len(gram))
        weights = np.linalg.solve(gram, rows.T @ (target - goal))
        return cls(kind, middle, weights, goal, is_unit)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Maps embeddings (items, size) to (items, target size)."""
        mapped = (rows - self.middle) @ self.weights + self.goal
        if self.is_unit:
            lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
            mapped = mapped / np.maximum(lengths, 1e-12)
        return mapped.astype("float32")


@dataclasses.dataclass(frozen=True)
class Sides:
    """Map of new embeddings into the old space, and calibration.

    A line is a and b of P(same class) = 1 / (1 + exp(-(a + b d))), with d the
    distance of a mapped query to an old item, or that in the new space.
    """

    to_old: Callable[[np.ndarray], np.ndarray]
    old_line: tuple[float, float]
    new_line: tuple[float, float]
    new_size: int

    def as_new(self, distances: np.ndarray) -> np.ndarray:
        """Returns the distances of equal chance in the new space."""
        (a, b), (c, d) = self.old_line, self.new_line
        if b >= 0 or d >= 0:  # Distances tell nothing about classes.
            return distances
        return np.maximum((a - c + b * distances) / d, 0)


def learned(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray, seed: int = 0
) -> tuple[Sides, dict[str, Any]]:
    """Chooses a map and lines, and certifies the map; `Upgrade.certificate`.

    `old` (items, old size) and `new` (items, new size) are the same items.
    """
    fit, choose, certify = parts_of(labels, seed)

    def scored(part, queries, items):
        """MAP@R of each query among the items, its own left out."""
        own = np.arange(len(items))
        scores = retrieval_scores(
            queries,
            labels[part],
            gallery_embeddings=items,
            gallery_labels=labels[part],
            query_groups=own,
            gallery_groups=own,
            per_query=True,
        )
        return scores["per_query"]["map_at_r"]

    maps = [SpaceMap.fitted(kind, new[fit], old[fit]) for kind in KINDS]
    best = max(
        maps,
        key=lambda one: scored(choose, one(new[choose]), old[choose]).mean(),
    )
    old_line, new_line = _lines(
        best(new[choose]), old[choose], new[choose], labels[choose]
    )
    both = fit | choose
    to_old = SpaceMap.fitted(best.kind, new[both], old[both])
    rows = {
        "old": scored(certify, old[certify], old[certify]),
        "mapped": scored(certify, to_old(new[certify]), old[certify]),
        "new": scored(certify, new[certify], new[certify]),
    }
    classes = labels[certify]
    return Sides(to_old, old_line, new_line, new.shape[1]), {
        **{name: float(np.mean(row)) for name, row in rows.items()},
        "cost": paired_difference(rows["mapped"], rows["old"], classes),
        "gain": paired_difference(rows["new"], rows["mapped"], classes),
        "map": best.kind,
    }


def parts_of(
    labels: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks of items that fit, choose and certify, by class."""
    names, counts = np.unique(labels, return_counts=True)
    names = names[counts > 1]
    if len(names) < LEAST_CLASSES:
        raise ValueError(
            f"`sample` must hold at least {LEAST_CLASSES} classes with two "
            f"images: they fit, choose and certify. Received: {len(names)}."
        )
    names = np.random.default_rng(seed).permutation(names)
    parts = np.split(names, [len(names) // 4, len(names) // 2])
    choose, certify, fit = (np.isin(labels, part) for part in parts)
    return fit, choose, certify


def _lines(mapped, old, new, labels):
    """Lines of P(same class) against distance: to old items, to new ones."""
    # As many pairs of two classes as matter: 20 for each of one class.
    rows, columns = np.triu_indices(len(labels), 1)
    is_same = labels[rows] == labels[columns]
    share = min(1.0, 20 * is_same.sum() / max((~is_same).sum(), 1))
    kept = is_same | (np.random.default_rng(0).random(len(rows)) < share)
    rows, columns, is_same = rows[kept], columns[kept], is_same[kept]
    distances = (
        np.linalg.norm(queries[rows] - items[columns], axis=1)
        for queries, items in ((mapped, old), (new, new))
    )
    to_old, to_new = (logistic_line(one, is_same) for one in distances)
    return to_old, to_new


def logistic_line(
    distances: np.ndarray, is_same: np.ndarray
) -> tuple[float, float]:
    """Fits a and b of P(same class) = 1 / (1 + exp(-(a + b distance)))."""
    scale = distances.std() or 1.0
    features = np.stack([np.ones(len(distances)), distances / scale], axis=1)
    line = np.zeros(2)
    for _ in range(25):  # Newton's method
        share = 1 / (1 + np.exp(-np.clip(features @ line, -30, 30)))
        # A little ridge keeps classes that separate perfectly finite.
        weight = (share * (1 - share))[:, None]
        curve = (features * weight).T @ features + 1e-3 * np.eye(2)
        slope = features.T @ (is_same - share) - 1e-3 * line
        line = line + np.linalg.solve(curve, slope)
    return float(line[0]), float(line[1] / scale)
