"""Pictures of what a search found, from files or from the export."""

import functools
from pathlib import Path

import numpy as np

from training.artefacts.gallery_files import read_pictures


def gallery_bytes(folder: Path, id_: str) -> bytes | None:
    """An encoded image of the gallery, `None` where there is none any more.

    Args:
        folder: The export.
        id_: Id of a gallery image: its file, or its place in an export of a
            data set that has no files.
    """
    pictures = _pictures(folder)
    if pictures is not None:
        import tensorflow as tf

        images, ids = pictures
        places = np.flatnonzero(ids == id_)
        if not len(places):
            return None
        return tf.io.encode_png(np.asarray(images[places[0]])).numpy()
    return Path(id_).read_bytes() if Path(id_).is_file() else None


def pixels(contents: bytes | None) -> np.ndarray:
    """Decodes an image for drawing; a gray square where there is none."""
    import keras_gsp as gsp

    try:
        return gsp.data.decode_image(contents or b"")
    except ValueError:
        return np.full((8, 8, 3), 200, "uint8")


@functools.lru_cache(maxsize=1)
def _pictures(folder):
    """A sheet is decoded once, not for each of its pictures."""
    return read_pictures(folder)
