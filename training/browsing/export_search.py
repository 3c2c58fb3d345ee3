"""Load an exported retriever: its signatures and its gallery."""

import json
from pathlib import Path

import numpy as np

from training.browsing.exports import as_text, export_metadata, gallery_bytes


class ExportSearch:
    """Calls the signatures of an export with a gallery.

    Images of the gallery are read from `data_dir`, by default that of the run
    in `runs`, if it is still there. Raises `ValueError` for a file of the
    export that is missing or was changed.
    """

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        import tensorflow as tf

        from keras_gsp.storage.checksums import verify_checksums
        from keras_gsp.storage.whole import reading
        from training.datasets.layout import images_root

        self.folder = Path(folder)
        with reading(self.folder) as folder:
            self.metadata = export_metadata(folder)
            self.is_augmented = "augmentation" in self.metadata
            verify_checksums(folder)
            # The signatures live only as long as the model.
            self._model = tf.saved_model.load(str(folder))
        run = Path("runs", Path(self.metadata.get("run", "")).name)
        settings = run / "settings.json"
        if data_dir is None and settings.is_file():
            recipe = json.loads(settings.read_text())["recipe"]
            data_dir = recipe.get("data_dir")
        self._root = images_root(data_dir or ".")
        gallery = self._model.gallery_variables
        self.ids = [as_text(one) for one in gallery["ids"].numpy()]

    def call(self, signature: str, **inputs: list) -> dict[str, np.ndarray]:
        """Calls a signature of the export."""
        import tensorflow as tf

        answer = self._model.signatures[signature](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        return {name: value.numpy() for name, value in answer.items()}

    def image(self, id_: str) -> bytes | None:
        """Returns an encoded gallery image, None where its file is missing."""
        return gallery_bytes(self.folder, id_, self._root)
