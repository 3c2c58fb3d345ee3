"""Saving and loading a gallery: plain arrays, JSON and checksums."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data.preprocessing import Preprocessing
from keras_gsp.retrieval.index.columns import RESERVED, Rows, Texts
from keras_gsp.retrieval.index.gallery import Gallery, StoredVectors
from keras_gsp.retrieval.index.search_index import KEPT
from keras_gsp.storage.checksums import INDEX, verified_facts, write_checksums

FORMAT = 5
KEPT_IN_FILES = KEPT | {"preprocessing": ("preprocessing", Preprocessing)}
# Rows that are written at once.
WRITTEN_ROWS = 2**16


def save_gallery(index: Any, folder: Path, facts: dict[str, Any]) -> None:
    """Writes the gallery of an index, `facts` in `index.json`, and checksums.

    A memory-mapped gallery is read block by block.
    """
    gallery = index.gallery
    for name, array in gallery.columns.items():
        file = {"id": "ids", "label": "labels"}.get(name, f"attribute.{name}")
        if isinstance(array, Texts):
            np.save(folder / f"{file}.ends.npy", array.ends, allow_pickle=False)
            array = array.content
        np.save(folder / f"{file}.npy", array, allow_pickle=False)
    _write_vectors(gallery, folder)
    facts = facts | {
        "format": FORMAT,
        "items": len(gallery),
        "embedding_size": gallery.embedding_size,
        "storage": gallery.storage,
        "attributes": sorted(set(gallery.columns) - RESERVED),
        "added": gallery.num_added,
        "low": gallery.low.tolist(),
        "high": gallery.high.tolist(),
    }
    for name, (key, _) in KEPT_IN_FILES.items():
        if (value := getattr(index, name)) is not None:
            facts[key] = value.get_config()
    text = json.dumps(facts, indent=2)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")
    write_checksums(folder)


def saved_facts(folder: Path, kind: str, *, is_mapped: bool) -> dict[str, Any]:
    """Verifies a saved index of a kind and returns its `index.json`."""
    facts = verified_facts(
        folder, skip=("embeddings.npy",) if is_mapped else ()
    )
    found = facts.get("kind"), facts.get("format")
    if found != (kind, FORMAT):
        raise ValueError(
            f"{str(folder)!r} must hold an index of kind {kind!r} in format "
            f"{FORMAT}. Received: kind {found[0]!r} in format {found[1]!r}."
        )
    return facts


def read_gallery(
    index: Any, folder: Path, facts: dict[str, Any], *, is_mapped: bool
) -> None:
    """Fills an empty index from a folder; see `ExactIndex.load`."""
    try:
        index.gallery = _read(folder, facts, is_mapped)
        for name, (key, kind) in KEPT_IN_FILES.items():
            if config := facts.get(key):
                setattr(index, name, kind.from_config(config))
    except (EOFError, KeyError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"{str(folder)!r} must hold an index as it was saved, plain arrays "
            f"that fit {INDEX}; pickled objects are never loaded. "
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _read(folder, facts, is_mapped):
    names = facts["attributes"]
    if not all(str(name).isidentifier() for name in names):
        # A name must not lead to a file elsewhere.
        raise ValueError(f"attributes must be words, not {names}")

    def loaded(name, mode=None):
        return np.load(folder / f"{name}.npy", mode, allow_pickle=False)

    def column(name):
        values: Any = Rows(loaded(name, mode))
        if (folder / f"{name}.ends.npy").exists():
            ends, size = loaded(f"{name}.ends", mode), len(values)
            if (np.diff(ends, prepend=0, append=size) < 0).any():
                raise ValueError(f"{name}.ends must rise to {size}")
            values = Texts(values, Rows(ends))
        elif values.values.dtype not in ("int64", "float64"):
            dtype = values.values.dtype
            raise ValueError(f"{name} must be int64 or float64, not {dtype}")
        if len(values) != count:
            raise ValueError(f"{name} must have {count} entries")
        return values

    mode = "r" if is_mapped else None
    values = loaded("embeddings", mode)
    count, size = expected = facts["items"], facts["embedding_size"]
    if values.shape != expected or values.dtype != facts["storage"]:
        raise ValueError(
            f"embeddings must be {expected} {facts['storage']}, "
            f"not {values.shape} {values.dtype}"
        )
    low, high = (np.array(facts[name], "f4") for name in ("low", "high"))
    stored: dict[str, Rows | Texts]
    stored = {"id": column("ids"), "label": column("labels")}
    stored |= {name: column(f"attribute.{name}") for name in names}
    parts = (StoredVectors(Rows(values)),)
    return Gallery(
        facts["storage"], parts, stored, low, high, int(facts["added"])
    )


def _write_vectors(gallery, folder):
    """Writes to a file: with a full disk, a memory map kills the process."""
    header = {
        "shape": (len(gallery), gallery.embedding_size),
        "fortran_order": False,
        "descr": np.dtype(gallery.storage).str,
    }
    with open(folder / "embeddings.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in gallery.parts:
            for start in range(0, len(part), WRITTEN_ROWS):
                values = part.stored(slice(start, start + WRITTEN_ROWS))
                file.write(np.ascontiguousarray(values).data)
