"""Canaries: pictures that an artifact carries with their embeddings."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FILE = "canaries.npz"
MOST = 12
# Distance as a share of the length.
MOVED = 1e-3
# The decoder of a graph may round pixels to another of 255 levels.
ROUNDED = 0.1


@dataclasses.dataclass(frozen=True)
class Canaries:
    """A dozen image files, their ids and where an encoder embedded them."""

    ids: list[Any]
    images: list[bytes]
    embeddings: np.ndarray

    @classmethod
    def of(
        cls,
        embed: Callable[[list[bytes]], np.ndarray],
        index: Any,
        files: Mapping[Any, str | Path | bytes],
    ) -> "Canaries":
        """Takes some of `files`, by id, with what `embed` makes of them.

        `RuntimeError` if that is not near the embeddings of the index.
        """
        chosen = list(files)[:: -(-len(files) // MOST) or 1]
        embeddings, _, found, _ = index.items(chosen)
        missing = sorted(set(chosen) - set(found.tolist()))
        if missing or not chosen:
            raise ValueError(
                "`canaries` must be image files by the ids of items of the "
                f"index. Received: ids {missing} that it does not hold."
            )
        images = [
            one if isinstance(one, bytes) else Path(one).read_bytes()
            for one in map(files.__getitem__, chosen)
        ]
        # Files are of any size, for encoders of one at a time.
        rows = np.concatenate([embed([one]) for one in images])
        cls(chosen, images, embeddings).check(rows, ROUNDED)
        return cls(chosen, images, rows)

    def check(self, found: np.ndarray, limit: float = MOVED) -> float:
        """Returns the largest distance; `RuntimeError` names what moved."""
        distances = moves(found, self.embeddings)
        moved = [
            f"{name}: {distance:.2g}"
            for name, distance in zip(self.ids, distances, strict=True)
            if not distance <= limit
        ]
        if moved:
            raise RuntimeError(
                "Images must be embedded as before, to a distance of "
                f"{limit:g}. Received: {len(moved)} of "
                f"{len(self.ids)} that moved: {'; '.join(moved)}."
            )
        return float(distances.max())

    def save(self, folder: Path) -> None:
        """Writes them as arrays without pickle."""
        lengths = [len(one) for one in self.images]
        np.savez(
            folder / FILE,
            ids=np.array(self.ids),
            images=np.frombuffer(b"".join(self.images), "uint8"),
            lengths=np.array(lengths, "int64"),
            embeddings=self.embeddings,
        )

    @classmethod
    def load(cls, folder: Path) -> "Canaries":
        """Reads what `save` wrote."""
        with np.load(folder / FILE, allow_pickle=False) as read:
            ends = np.cumsum(read["lengths"])[:-1]
            images = [one.tobytes() for one in np.split(read["images"], ends)]
            return cls(read["ids"].tolist(), images, read["embeddings"])


def moves(found: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Returns how far embeddings have moved, as shares of their lengths."""
    lengths = np.maximum(np.linalg.norm(embeddings, axis=1), 1e-12)
    return np.linalg.norm(found - embeddings, axis=1) / lengths
