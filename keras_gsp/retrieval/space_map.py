"""Maps from one embedding space to another, fitted and certified by class."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.search_recall import own_map_at_r

KINDS = "procrustes", "ridge"
# Of the mean variance of the coordinates.
PENALTY = 1e-2


@dataclasses.dataclass(frozen=True)
class SpaceMap:
    """Maps new embeddings x to x weights + offset, of length 1 if `is_unit`.

    With (a, b) = `line`, distance d to an old item becomes a + b d, at which a
    new item is as likely to be of the query's class.
    """

    weights: np.ndarray
    offset: np.ndarray | float = 0.0
    is_unit: bool = False
    line: tuple[float, float] = (0.0, 1.0)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Maps embeddings (items, new size) to (items, old size)."""
        mapped = rows @ self.weights + self.offset
        if self.is_unit:
            mapped = keras.utils.normalize(mapped)
        return mapped.astype("float32")


def fitted_map(kind: str, source: np.ndarray, target: np.ndarray) -> SpaceMap:
    """Fits a map of the rows X of `source` to the rows Y of `target`.

    Procrustes: x U V with X^T Y = U S V, the nearest rotation. Ridge:
    (x - mean X) W + mean Y, least squares with a penalty.
    """
    lengths = np.linalg.norm(target, axis=1)
    is_unit = bool(np.allclose(lengths, 1.0, atol=1e-3))
    source, target = source.astype("float64"), target.astype("float64")
    if kind == "procrustes":
        left, _, right = np.linalg.svd(source.T @ target, False)
        return SpaceMap(left @ right, is_unit=is_unit)
    middle, goal = source.mean(axis=0), target.mean(axis=0)
    rows = source - middle
    gram = rows.T @ rows
    gram += PENALTY * np.trace(gram) / len(gram) * np.eye(len(gram))
    weights = np.linalg.solve(gram, rows.T @ (target - goal))
    return SpaceMap(weights, goal - middle @ weights, is_unit)


def certified_map(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray
) -> tuple[SpaceMap, dict[str, Any]]:
    """Chooses, calibrates and certifies a map; see `Upgrade.certificate`.

    `old` (items, old size) and `new` (items, new size) are the same items.
    """
    fit, choose, certify = _parts(labels)

    def scored(part, queries, items):
        index = ExactIndex(items[part], labels[part])
        return own_map_at_r(index, queries[part], labels[part], index.ids())

    mapped = {k: fitted_map(k, new[fit], old[fit])(new) for k in KINDS}
    best = max(KINDS, key=lambda k: scored(choose, mapped[k], old).mean())
    line = _line(*(x[choose] for x in (mapped[best], old, new, labels)))
    both = fit | choose
    space_map = fitted_map(best, new[both], old[both])
    rows = {
        "old": scored(certify, old, old),
        "mapped": scored(certify, space_map(new), old),
        "new": scored(certify, new, new),
    }
    classes = labels[certify]
    return dataclasses.replace(space_map, line=line), {
        **{name: float(np.mean(row)) for name, row in rows.items()},
        "cost": paired_difference(rows["mapped"], rows["old"], classes),
        "gain": paired_difference(rows["new"], rows["mapped"], classes),
        "map": best,
    }


def _parts(labels):
    """Masks of items that fit, choose and certify, by class."""
    names, counts = np.unique(labels, return_counts=True)
    names = names[counts > 1]
    if len(names) < 12:
        raise ValueError(
            "`sample` must hold at least 12 classes with two images: they "
            f"fit, choose and certify. Received: {len(names)}."
        )
    names = np.random.default_rng(0).permutation(names)
    parts = np.split(names, [len(names) // 4, len(names) // 2])
    choose, certify, fit = (np.isin(labels, part) for part in parts)
    return fit, choose, certify


def _line(mapped, old, new, labels):
    """The `line` with which distances in both spaces have equal chances."""
    # As many pairs of two classes as matter: 20 for each of one class.
    rows, columns = np.triu_indices(len(labels), 1)
    is_same = labels[rows] == labels[columns]
    share = min(1.0, 20 * is_same.sum() / max((~is_same).sum(), 1))
    kept = is_same | (np.random.default_rng(0).random(len(rows)) < share)
    rows, columns, is_same = rows[kept], columns[kept], is_same[kept]
    (a, b), (c, d) = (
        logistic_line(
            np.linalg.norm(queries[rows] - items[columns], axis=1), is_same
        )
        for queries, items in ((mapped, old), (new, new))
    )
    # Where distances tell nothing about classes they stay as they are.
    return ((a - c) / d, b / d) if b < 0 and d < 0 else (0.0, 1.0)


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
        curve = (features.T * share * (1 - share)) @ features + 1e-3 * np.eye(2)
        line += np.linalg.solve(
            curve, features.T @ (is_same - share) - 1e-3 * line
        )
    return float(line[0]), float(line[1] / scale)
