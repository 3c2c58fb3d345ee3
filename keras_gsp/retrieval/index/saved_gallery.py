"""Saving and loading a gallery: plain arrays, JSON and checksums."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data.preprocessing import Preprocessing
from keras_gsp.retrieval.index.columns import checked_items
from keras_gsp.retrieval.index.gallery import empty_gallery
from keras_gsp.retrieval.index.search_index import KEPT
from keras_gsp.retrieval.saved_files import INDEX, verified_facts
from keras_gsp.storage.checksums import write_checksums

FORMAT = 5
# Names of files that are no UTF-8 have surrogates.
ENCODING = "utf-8", "surrogatepass"
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
        if array.dtype == object:
            # One after the other, as UTF-8, and where each ends.
            texts = [text.encode(*ENCODING) for text in array]
            ends = np.cumsum([len(text) for text in texts], dtype="int64")
            np.save(folder / f"{file}.ends.npy", ends, allow_pickle=False)
            array = np.frombuffer(b"".join(texts), "uint8")
        np.save(folder / f"{file}.npy", array, allow_pickle=False)
    _write_vectors(gallery, folder)
    facts = facts | {
        "format": FORMAT,
        "items": len(gallery),
        "embedding_size": gallery.embedding_size,
        "storage": gallery.storage,
        "attributes": sorted(gallery.attributes),
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
    gallery = empty_gallery(facts["storage"])
    names = facts["attributes"]
    if not all(str(name).isidentifier() for name in names):
        # A name must not lead to a file elsewhere.
        raise ValueError(f"attributes must be words, not {names}")

    def loaded(name, mode=None):
        return np.load(folder / f"{name}.npy", mode, allow_pickle=False)

    def column(name):
        if not (folder / f"{name}.ends.npy").exists():
            return loaded(name)
        content, ends = loaded(name).tobytes(), loaded(f"{name}.ends").tolist()
        pairs = zip([0, *ends[:-1]], ends, strict=True)
        return [content[start:end].decode(*ENCODING) for start, end in pairs]

    values = loaded("embeddings", "r" if is_mapped else None)
    count, size = expected = facts["items"], facts["embedding_size"]
    if values.shape != expected or values.dtype != facts["storage"]:
        raise ValueError(
            f"embeddings must be {expected} {facts['storage']}, "
            f"not {values.shape} {values.dtype}"
        )
    low, high = (np.array(facts[name], "f4") for name in ("low", "high"))
    # Rows of zeros in place of the vectors: only the columns are checked.
    _, columns = checked_items(
        np.zeros((count, 1), "f4"),
        column("labels"),
        column("ids"),
        {name: column(f"attribute.{name}") for name in names},
    )
    gallery = gallery.appended(values, columns, low, high)
    return dataclasses.replace(gallery, num_added=int(facts["added"]))


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
