"""A gallery on disk: plain arrays and a JSON file, never pickle."""

import json
from pathlib import Path

import numpy as np

from keras_gsp.retrieval.index.gallery import Gallery

FORMAT = 1
ARRAYS = "embeddings", "labels", "ids"


def save_gallery(gallery, folder, **facts):
    """Writes a gallery and its description into an existing folder.

    Args:
        gallery: `Gallery`, not empty.
        folder: where to.
        **facts: what else the description says, JSON values.
    """
    folder = Path(folder)
    for name in ARRAYS:
        array = getattr(gallery, name)
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    facts |= {
        "format": FORMAT,
        "items": len(gallery),
        "embedding_size": gallery.embedding_size,
    }
    text = json.dumps(facts, indent=2)
    (folder / "index.json").write_text(text + "\n", encoding="utf-8")


def load_gallery(folder, kind):
    """Reads a gallery and its description.

    Args:
        folder: where `save_gallery` wrote.
        kind: the `kind` that its description must say.

    Returns:
        The `Gallery` and the facts it was saved with, a dict.

    Raises:
        FileNotFoundError: no index there.
        ValueError: another kind of index, arrays that do not fit their
            description, or pickled objects.
    """
    folder = Path(folder)
    facts = _read_facts(folder, kind)
    arrays = [_load_array(folder / f"{name}.npy") for name in ARRAYS]
    expected = (facts["items"], facts["embedding_size"])
    if arrays[0].shape != expected:
        raise ValueError(
            "The embeddings of an index must have the shape that its "
            f"index.json says, {expected}. "
            f"Received: {arrays[0].shape} in {str(folder)!r}."
        )
    return Gallery(*arrays), facts


def _read_facts(folder, kind):
    path = folder / "index.json"
    if not path.is_file():
        raise FileNotFoundError(
            "`path` must be a folder that an index was saved to. Received: "
            f"{str(folder)!r}, without index.json."
        )
    facts = json.loads(path.read_text(encoding="utf-8"))
    found = facts.get("kind"), facts.get("format")
    if found != (kind, FORMAT):
        raise ValueError(
            f"{str(folder)!r} must hold an index of kind {kind!r} in format "
            f"{FORMAT}. Received: kind {found[0]!r} in format {found[1]!r}."
        )
    return facts


def _load_array(path):
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise ValueError(
            "The arrays of an index must be plain numbers or strings; "
            "pickled objects can run code and are never loaded. "
            f"Received: {str(path)!r}: {error}"
        ) from error
