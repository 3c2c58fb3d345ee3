"""An exported retriever: its folder, its signatures, its gallery's images."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.encoding import encoded_image

DEFAULT_FOLDER = Path("saved_models")
# Images that have no files, in the order of the gallery.
IMAGES = "gallery_images.npz"


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


def as_text(value: bytes | str) -> str:
    """Returns a label or an id of an export, bytes or a number, as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


class ExportSearch:
    """Calls the search of an export with a gallery.

    Images of the gallery are read from `data_dir`, by default that of the run
    in `runs`, if it is still there. Raises `ValueError` for an export without
    a gallery, or a file of it that is missing or was changed.
    """

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        from keras_gsp.storage.checksums import verify_checksums
        from keras_gsp.storage.whole import reading
        from training.datasets.layout import images_root

        self.folder = Path(folder)
        self.images: Any = None
        with reading(self.folder) as folder:
            text = (folder / "metadata.json").read_text()
            self.metadata = json.loads(text)
            if "search" not in self.metadata.get("signatures", []):
                raise ValueError(
                    "`model` must be exported with an index. "
                    f"Received: {folder}, which holds an encoder alone."
                )
            import tensorflow as tf

            verify_checksums(folder)
            # The signatures live only as long as the model.
            self._model = tf.saved_model.load(str(folder))
            if (folder / IMAGES).is_file():
                self.images = np.load(folder / IMAGES)["images"]
        self.is_augmented = "augmentation" in self.metadata
        run = Path("runs", Path(self.metadata.get("run", "")).name)
        settings = run / "settings.json"
        if data_dir is None and settings.is_file():
            recipe = json.loads(settings.read_text())["recipe"]
            data_dir = recipe.get("data_dir")
        self._root = images_root(data_dir or ".")
        gallery = self._model.gallery_variables
        self.ids = [as_text(one) for one in gallery["ids"].numpy()]

    def search(self, image_bytes: list[bytes]) -> dict[str, np.ndarray]:
        """Calls the export's signature `"search"`."""
        import tensorflow as tf

        answer = self._model.signatures["search"](
            image_bytes=tf.constant(image_bytes)
        )
        return {name: value.numpy() for name, value in answer.items()}

    def image(self, id_: str) -> bytes | None:
        """Returns an encoded gallery image, None where its file is missing."""
        if self.images is not None:
            return encoded_image(self.images[self.ids.index(id_)], "PNG")
        # Ids are paths below the root; those of a foreign export may not be.
        name = os.path.normpath(id_)
        is_below = not os.path.isabs(name) and Path(name).parts[:1] != ("..",)
        file = self._root / name
        return file.read_bytes() if is_below and file.is_file() else None
