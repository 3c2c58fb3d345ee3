"""What an export carries: metadata, a model card, and canaries."""

import dataclasses
import datetime
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from keras_gsp.storage.checksums import METADATA, write_checksums

CARD = "README.md"
_SCORES = ("map_at_r", "precision_at_1", "precision_at_r", "num_queries")
_CARD = """---
library_name: "keras"
pipeline_tag: "image-feature-extraction"
tags: ["keras-gsp", "metric-learning", "image-retrieval"]
{license}---

# Model card

## Intended use

Finding images of the same class in a gallery, also of classes that were not \
in the training data.

## Scores

Images of classes that were not in the training data, each a query among all \
others; the weights were chosen on validation classes.

| score | value |
| --- | --- |
{scores}

## Unknown images

{unknown}

## Limits

- A search always returns a nearest neighbor, also for an image of a class \
that the gallery does not hold.
- The scores hold for the data below; measure them again on other images.
- Do not use it to infer a person's identity, health or character.

## Training, files and preparation

Images are turned upright (Exif), cropped to the centered square of \
`crop_fraction` of the shorter side (`null`: not) and resized (bilinear, \
anti-aliased) to `image_shape` (`null`: not), pixels in [0, 255].

```json
{metadata}
```
"""


def exported_facts(
    served: ServedEncoder, metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the metadata of an export: versions, sizes and preparation."""
    now = datetime.datetime.now(datetime.UTC)
    # Of the modules: a checkout on the path, a frozen program and keras-nightly
    # have no metadata of a package of this name.
    names = "keras_gsp", "keras", keras.backend.backend()
    modules = {name: importlib.import_module(name) for name in names}
    versions = {
        name: getattr(module, "__version__", "unknown")
        for name, module in modules.items()
    }
    return {
        **without_folders(metadata or {}),
        "exported": now.isoformat(timespec="seconds"),
        "versions": versions,
        "image_shape": list(served.image_shape),
        "crop_fraction": served.preprocessing.crop_fraction,
        "background": list(served.preprocessing.background),
        "max_pixels": served.preprocessing.max_pixels,
        "embedding_size": served.embedding_size,
        "space": served.space and served.space.get_config(),
    }


def without_folders(value: Any) -> Any:
    """Returns JSON values with paths out of the working folder shortened."""
    if isinstance(value, dict):
        return {name: without_folders(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
    if not isinstance(value, str):
        return value
    path = Path(value).expanduser()
    is_outside = path.is_absolute() or path.parts[:1] == ("..",)
    return path.name if is_outside else value


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Writes `metadata.json`, a model card and checksums into a folder."""
    text = json.dumps(facts, indent=2)
    (folder / METADATA).write_text(text + "\n", encoding="utf-8")
    unknown = "No match threshold: every image gets neighbors."
    if config := facts.get("match_threshold"):
        match = MatchThreshold.from_config(config)
        unknown = f"A neighbor within {match.distance:.4f} is a match."
        unknown += f"\n\n{match.table()}" if match.acceptance else ""
    name = facts.get("license")
    card = _CARD.format(
        license=f"license: {json.dumps(name)}\n" if name else "",
        scores="\n".join(_scores(facts)) or "| not measured | |",
        unknown=unknown,
        metadata=text,
    )
    (folder / CARD).write_text(card, encoding="utf-8")
    write_checksums(folder)


def _scores(facts):
    """Rows of the scores, and what training gained."""
    scores, lines = facts.get("scores", {}), []
    for name in (one for one in _SCORES if one in scores):
        value = scores[name]
        text = f"{value:.4f}" if isinstance(value, float) else str(value)
        if f"lower_{name}" in scores:
            ends = (scores[f"{end}_{name}"] for end in ("lower", "upper"))
            text += " ({:.4f} to {:.4f})".format(*ends)
        lines.append(f"| {name} | {text} |")
    if said := scores.get("verdict"):
        lines += ["", said]
    return lines


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
