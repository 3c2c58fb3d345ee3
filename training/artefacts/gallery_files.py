"""Files in an export that show a gallery which has no files of its own."""

from pathlib import Path

import numpy as np

# A sheet of equal images, row by row; an array where it would be too large.
SHEET = "gallery_images.png"
PICTURES = "gallery_images.npy"
PICTURE_IDS = "gallery_ids.npy"
_SHEET_PIXELS = 20_000_000


def write_pictures(folder: Path, images: np.ndarray, ids: np.ndarray) -> None:
    """Writes the pictures of a gallery into an export.

    Args:
        folder: The export.
        images: (num_images, height, width, 3), uint8.
        ids: (num_images,), strings.
    """
    np.save(folder / PICTURE_IDS, ids, allow_pickle=False)
    count, height, width, channels = images.shape
    if count * height * width > _SHEET_PIXELS:
        np.save(folder / PICTURES, images, allow_pickle=False)
        return
    import tensorflow as tf

    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    sheet = np.zeros((rows * columns, height, width, channels), "uint8")
    sheet[:count] = images
    sheet = sheet.reshape(rows, columns, height, width, channels)
    sheet = sheet.transpose(0, 2, 1, 3, 4)
    sheet = sheet.reshape(rows * height, columns * width, channels)
    contents = tf.io.encode_png(sheet, compression=9).numpy()
    (folder / SHEET).write_bytes(contents)


def read_pictures(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Reads what `write_pictures` wrote.

    Args:
        folder: The export.

    Returns:
        Images and ids, None where the export has none.
    """
    if not (folder / PICTURE_IDS).is_file():
        return None
    ids = np.load(folder / PICTURE_IDS, allow_pickle=False)
    if not (folder / SHEET).is_file():
        images = np.load(folder / PICTURES, mmap_mode="r", allow_pickle=False)
        return images, ids
    import keras_gsp as gsp

    sheet = gsp.data.decode_image((folder / SHEET).read_bytes())
    columns = int(np.ceil(np.sqrt(len(ids))))
    rows = -(-len(ids) // columns)
    height, width = sheet.shape[0] // rows, sheet.shape[1] // columns
    cells = sheet.reshape(rows, height, columns, width, 3)
    cells = cells.transpose(0, 2, 1, 3, 4).reshape(-1, height, width, 3)
    return cells[: len(ids)], ids
