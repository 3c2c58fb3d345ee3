"""Pictures of what a search found, from files or from the export."""

from pathlib import Path

import numpy as np

from training.artefacts.gallery_files import PICTURE_IDS, PICTURES


def gallery_bytes(folder: Path, id_: str) -> bytes | None:
    """An encoded image of the gallery, `None` where there is none any more.

    Args:
        folder: The export.
        id_: Id of a gallery image: its file, or its place in an export of a
            data set that has no files.
    """
    if (folder / PICTURE_IDS).is_file():
        import tensorflow as tf

        ids = np.load(folder / PICTURE_IDS, allow_pickle=False)
        images = np.load(folder / PICTURES, mmap_mode="r", allow_pickle=False)
        places = np.flatnonzero(ids == id_)
        if not len(places):
            return None
        return tf.io.encode_png(np.asarray(images[places[0]])).numpy()
    return Path(id_).read_bytes() if Path(id_).is_file() else None


def pixels(contents: bytes | None) -> np.ndarray:
    """Decodes an image for drawing; a grey square where there is none."""
    import tensorflow as tf

    try:
        image = tf.io.decode_image(
            contents or b"", channels=3, expand_animations=False
        )
    except tf.errors.InvalidArgumentError:
        return np.full((8, 8, 3), 200, "uint8")
    return image.numpy()
