"""The files of an export: its metadata and its gallery images."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.encoding import encoded_image

DEFAULT_FOLDER = Path("saved_models")
# One PNG of equal images, row by row; an array where that would be too large.
SHEET = "gallery_images.png"
IMAGES = "gallery_images.npy"
IDS = "gallery_ids.npy"
_SHEET_PIXELS = 20_000_000


def exported_folder(path: Path) -> Path:
    """Returns the SavedModel at a path, or the one exported from that run."""
    for folder in (path, DEFAULT_FOLDER / path.name):
        if (folder / "saved_model.pb").is_file():
            return folder
    raise FileNotFoundError(
        f"`model` must be an exported retriever. Received: {path}, without "
        "saved_model.pb. Export a run with "
        f"`python -m training.export {path} --index exact`."
    )


def export_metadata(folder: Path) -> dict[str, Any]:
    """Reads `metadata.json` of an export that has a gallery."""
    metadata = json.loads((folder / "metadata.json").read_text())
    if "search" not in metadata.get("signatures", []):
        raise ValueError(
            "`model` must be exported with an index. "
            f"Received: {folder}, which holds an encoder alone."
        )
    return metadata


def as_text(value: Any) -> str:
    """Returns a label or an id of an export, bytes or a number, as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def write_gallery_images(
    folder: Path, images: np.ndarray, ids: np.ndarray
) -> None:
    """Stores gallery images that have no files, uint8, in an export."""
    from PIL import Image

    np.save(folder / IDS, ids, allow_pickle=False)
    count, height, width, channels = images.shape
    if count * height * width > _SHEET_PIXELS:
        np.save(folder / IMAGES, images, allow_pickle=False)
        return
    rows, columns = _grid(count)
    sheet = np.zeros((rows * columns, height, width, channels), "uint8")
    sheet[:count] = images
    sheet = sheet.reshape(rows, columns, height, width, channels)
    sheet = sheet.transpose(0, 2, 1, 3, 4)
    sheet = sheet.reshape(rows * height, columns * width, channels)
    Image.fromarray(sheet).save(folder / SHEET, optimize=True)


def _grid(count):
    columns = int(np.ceil(np.sqrt(count)))
    return -(-count // columns), columns


@functools.lru_cache(maxsize=1)
def read_gallery_images(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Reads the images and ids of `write_gallery_images`, None without."""
    from PIL import Image

    if not (folder / IDS).is_file():
        return None
    ids = np.load(folder / IDS, allow_pickle=False)
    if not (folder / SHEET).is_file():
        return np.load(folder / IMAGES, mmap_mode="r", allow_pickle=False), ids
    sheet = np.asarray(Image.open(folder / SHEET).convert("RGB"))
    rows, columns = _grid(len(ids))
    height, width = sheet.shape[0] // rows, sheet.shape[1] // columns
    cells = sheet.reshape(rows, height, columns, width, 3)
    cells = cells.transpose(0, 2, 1, 3, 4).reshape(-1, height, width, 3)
    return cells[: len(ids)], ids


def gallery_bytes(folder: Path, id_: str, root: Path) -> bytes | None:
    """Returns an encoded gallery image, None where its file is missing."""
    stored = read_gallery_images(folder)
    if stored is None:
        # Ids are paths below the root; those of a foreign export may not be.
        name = os.path.normpath(id_)
        is_below = not os.path.isabs(name) and Path(name).parts[:1] != ("..",)
        file = root / name
        return file.read_bytes() if is_below and file.is_file() else None
    images, ids = stored
    positions = np.flatnonzero(ids == id_)
    if not len(positions):
        return None
    return encoded_image(np.asarray(images[positions[0]]), "PNG")
