"""Load an exported retriever: its signatures, its gallery, its own search."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from training.browsing.exports import as_text, export_metadata, gallery_bytes


class ExportSearch:
    """Calls the signatures of an export with a gallery.

    The signatures return a fixed number of neighbors, `search` any number.
    Images of the gallery are read from `data_dir`, by default that of the run
    in `runs`, if it is still there. Raises `ValueError` for a file of the
    export that is missing or was changed.
    """

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        import tensorflow as tf

        import keras_gsp as gsp
        from keras_gsp.storage.checksums import verify_checksums
        from keras_gsp.storage.whole import reading
        from training.datasets.layout import images_root

        self.folder = Path(folder)
        with reading(self.folder) as folder:
            self.metadata = export_metadata(folder)
            verify_checksums(folder)
            # The signatures live only as long as the model.
            self._model = tf.saved_model.load(str(folder))
        # Side of the embedded square as a fraction of the shorter side.
        self.crop_fraction = self.metadata["crop_fraction"]
        run = Path("runs", Path(self.metadata.get("run", "")).name)
        settings = run / "settings.json"
        if data_dir is None and settings.is_file():
            recipe = json.loads(settings.read_text())["recipe"]
            data_dir = recipe.get("data_dir")
        self._root = images_root(data_dir or ".")
        gallery = self._model.gallery_variables
        self.labels = np.array([as_text(x) for x in gallery["labels"].numpy()])
        self.ids = [as_text(one) for one in gallery["ids"].numpy()]
        # Exports pad the rows of the gallery.
        rows = gallery["rows"].numpy()[: len(self.ids)]
        attributes = {}
        if "items" in self.metadata["signatures"]:
            items = [as_text(one) for one in gallery["groups"].numpy()]
            attributes["item"] = items
        self._index = gsp.retrieval.ExactIndex(
            rows + gallery["origin"].numpy(), self.labels, attributes=attributes
        )

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

    def search(
        self,
        contents: bytes,
        k: int,
        without: int | None = None,
        items: bool = False,
    ) -> list[dict[str, Any]]:
        """Finds the `k` gallery images nearest to an encoded image.

        Dicts of `position`, `label`, `name` and `distance`, Euclidean; with
        `items` one of each item, and `item` and `count`. `without` is a
        position to leave out. Raises `ValueError` for an image that cannot be
        read.
        """
        answer = self.call("embed", image_bytes=[contents])
        _check_read(answer["status"])
        left_out = None if without is None else [without]
        found: Any = self._index.search(
            answer["embedding"],
            k,
            exclude_ids=left_out,
            group_by="item" if items else None,
        )
        count, facts = int(found.counts[0]), []
        for rank, position in enumerate(found.ids[0, :count].tolist()):
            facts.append({"position": position, "name": self.ids[position]})
            facts[-1]["label"] = str(self.labels[position])
            facts[-1]["distance"] = float(found.distances[0, rank])
            if items:
                facts[-1]["item"] = str(found.groups[0, rank])
                facts[-1]["count"] = int(found.group_counts[0, rank])
        return facts

    def box(self, contents: bytes) -> list[float] | None:
        """Where a `TwoLooks` looks again: left, top, width, height.

        Shares of the embedded part; `None` for other encoders.
        """
        if "boxes" not in self.metadata["signatures"]:
            return None
        found = self.call("boxes", image_bytes=[contents])["boxes"][0]
        top, left, bottom, right = found.tolist()
        return [left, top, right - left, bottom - top]

    def explain(
        self, query: bytes, neighbors: list[bytes]
    ) -> dict[str, np.ndarray]:
        """Calls the signature `explain` on an image and others."""
        answer = self.call(
            "explain",
            query_bytes=[query] * len(neighbors),
            neighbor_bytes=neighbors,
        )
        _check_read(answer["query_status"])
        _check_read(answer["neighbor_status"])
        return answer


def _check_read(statuses):
    for status in statuses:
        if status != b"ok":
            raise ValueError(f"The image is {status.decode()}.")
