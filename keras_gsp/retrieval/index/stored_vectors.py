"""Embeddings in float32, in half the memory, or in a quarter of it.

| storage | bytes a number | stored |
| --- | --- | --- |
| float32 | 4 | the embedding |
| float16 | 2 | the embedding, rounded to 11 bits |
| int8 | 1, and 4 a row | `round(127 x / max|x|)` and the row's `max|x| / 127` |

A search decodes one block at a time and is exact for the rounded embeddings.
"""

from typing import Any

import numpy as np

STORAGES = "float32", "float16", "int8"
LEVELS = 127


class StoredVectors:
    """Rows of one part of a gallery, in memory or on disk.

    `values` (rows, size) may be memory-mapped and are then never copied as a
    whole; `scales` (rows,) are factors of int8 rows; `places` are the rows that
    were not deleted, rising, `None` for all.
    """

    def __init__(
        self,
        values: np.ndarray,
        scales: np.ndarray | None = None,
        places: np.ndarray | None = None,
    ) -> None:
        self.values, self.scales, self.places = values, scales, places

    @classmethod
    def encoded(cls, rows: np.ndarray, storage: str) -> "StoredVectors":
        """Stores rows (rows, size), finite float32."""
        if storage == "float32":
            return cls(rows)
        if storage == "float16":
            with np.errstate(over="ignore"):
                halves = rows.astype("float16")
            if not np.isfinite(halves).all():
                raise ValueError(
                    '`embeddings` must be within 65504 for storage="float16". '
                    f"Received: {np.abs(rows).max():g}."
                )
            return cls(halves)
        largest = np.abs(rows).max(axis=1)
        scales = (np.where(largest > 0, largest, LEVELS) / LEVELS).astype("f4")
        # A row of the smallest numbers may round to a scale of 0.
        scales = np.maximum(scales, np.finfo("f4").tiny)
        levels = np.rint(rows / scales[:, None])
        return cls(np.clip(levels, -LEVELS, LEVELS).astype("int8"), scales)

    def __len__(self) -> int:
        return len(self.values if self.places is None else self.places)

    def stored(self, selection: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns values and scales of rows, not counting deleted ones."""
        if self.places is not None:
            selection = self.places[selection]
        scales = None if self.scales is None else self.scales[selection]
        return self.values[selection], scales

    def rows(self, selection: Any) -> np.ndarray:
        """Returns some rows decoded, (selected, size), float32."""
        values, scales = self.stored(selection)
        if scales is not None:
            return values * scales[:, None]
        return np.asarray(values).astype("float32", copy=False)

    def only(self, is_left: np.ndarray) -> "StoredVectors":
        """Returns the rows of a mask; a memory-mapped file is not copied."""
        left = np.flatnonzero(is_left)
        if self.places is None and not isinstance(self.values, np.memmap):
            return StoredVectors(*self.stored(left))
        places = left if self.places is None else self.places[left]
        return StoredVectors(self.values, self.scales, places)
