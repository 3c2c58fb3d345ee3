"""Maps from one embedding space to another, fitted on pairs of embeddings.

| name | map of x, from the pairs X, Y |
| --- | --- |
| `"procrustes"` | x U V, with X^T Y = U S V: the nearest rotation |
| `"ridge"` | (x - mean X) W + mean Y, least squares with a penalty |
"""

import dataclasses
from collections.abc import Callable

import numpy as np

# Of the mean variance of the coordinates.
PENALTY = 1e-2


@dataclasses.dataclass(frozen=True)
class SpaceMap:
    """Maps embeddings (items, size) to (items, target size), float32.

    Args:
        kind: `"procrustes"` or `"ridge"`.
        function: the map.
        is_unit: whether results are normalized to length 1, as the targets.
    """

    kind: str
    function: Callable[[np.ndarray], np.ndarray]
    is_unit: bool

    @classmethod
    def fitted(
        cls, kind: str, source: np.ndarray, target: np.ndarray
    ) -> "SpaceMap":
        """Fits a map from embeddings of the same items in two spaces."""
        lengths = np.linalg.norm(target, axis=1)
        is_unit = bool(np.allclose(lengths, 1.0, atol=1e-3))
        pairs = source.astype("float64"), target.astype("float64")
        return cls(kind, FITS[kind](*pairs), is_unit)

    def __call__(self, embeddings: np.ndarray) -> np.ndarray:
        """Maps embeddings."""
        mapped = np.asarray(self.function(embeddings), "float32")
        if self.is_unit:
            lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
            mapped = mapped / np.maximum(lengths, 1e-12)
        return mapped


def _procrustes(source, target):
    left, _, right = np.linalg.svd(source.T @ target, full_matrices=False)
    rotation = left @ right
    return lambda rows: rows @ rotation


def _ridge(source, target):
    middle, goal = source.mean(axis=0), target.mean(axis=0)
    rows = source - middle
    gram = rows.T @ rows
    gram += PENALTY * np.trace(gram) / len(gram) * np.eye(len(gram))
    weights = np.linalg.solve(gram, rows.T @ (target - goal))
    return lambda new: (new - middle) @ weights + goal


FITS = {"procrustes": _procrustes, "ridge": _ridge}


def logistic_line(
    distances: np.ndarray, is_same: np.ndarray
) -> tuple[float, float]:
    """Fits P(same class) = 1 / (1 + exp(-(a + b distance))) to pairs.

    Returns:
        a and b, by Newton's method.
    """
    scale = distances.std() or 1.0
    features = np.stack([np.ones(len(distances)), distances / scale], axis=1)
    line = np.zeros(2)
    for _ in range(25):
        share = 1 / (1 + np.exp(-np.clip(features @ line, -30, 30)))
        # A little ridge keeps classes that separate perfectly finite.
        weight = (share * (1 - share))[:, None]
        curve = (features * weight).T @ features + 1e-3 * np.eye(2)
        slope = features.T @ (is_same - share) - 1e-3 * line
        line = line + np.linalg.solve(curve, slope)
    return float(line[0]), float(line[1] / scale)
