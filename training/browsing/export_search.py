"""Load an exported retriever: its signatures, its gallery, its own search."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.browsing.exports import (
    as_text,
    export_metadata,
    gallery_bytes,
    gallery_root,
    load_export,
)


@dataclass(frozen=True)
class Neighbor:
    """A gallery image that a search returned, at a Euclidean distance."""

    position: int
    label: str
    name: str
    distance: float


class ExportSearch:
    """Calls the signatures of an export with a gallery.

    The signatures return a fixed number of neighbors. `search` finds any
    number in an `ExactIndex` of the gallery, or within one class. Images of
    the gallery are read from `data_dir`, by default that of the run.
    """

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        import keras_gsp as gsp

        self.folder = Path(folder)
        self.metadata = export_metadata(self.folder)
        self._root = gallery_root(self.metadata, data_dir)
        # The signatures live only as long as the model.
        self._model = load_export(self.folder)
        gallery = self._model.gallery_variables
        self.labels = np.array([as_text(x) for x in gallery["labels"].numpy()])
        self.ids = [as_text(one) for one in gallery["ids"].numpy()]
        # Exports pad the rows of the gallery.
        rows = gallery["rows"].numpy()[: len(self.ids)]
        self._index = gsp.retrieval.ExactIndex(
            rows + gallery["origin"].numpy(), self.labels
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def crop_fraction(self) -> float | None:
        """Side of the embedded square as a fraction of the shorter side."""
        return self.metadata["crop_fraction"]

    @property
    def threshold(self) -> float | None:
        """Distance up to which a neighbor is a match, where calibrated."""
        return (self.metadata.get("match_threshold") or {}).get("distance")

    @property
    def guarantee(self) -> dict[str, Any] | None:
        """The arguments of `RetrievalGuarantee`, where calibrated."""
        return self.metadata.get("guarantee")

    @property
    def can_explain(self) -> bool:
        """Whether the export splits similarities by prototype."""
        return "explain" in self.metadata["signatures"]

    @property
    def transport_ratio(self) -> float | None:
        """The ratio of GSP, unless it was learned or another layer pools."""
        recipe = self.metadata.get("recipe") or {}
        is_fixed = recipe.get("pooling") == "gsp"
        is_fixed = is_fixed and not recipe.get("learn_ratio")
        return recipe.get("transport_ratio") if is_fixed else None

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
        label: str | None = None,
        without: int | None = None,
    ) -> list[Neighbor]:
        """Finds the `k` gallery images nearest to an encoded image.

        `label` is the only class to search, `without` the position of an image
        to leave out. Raises `ValueError` for an image that cannot be read.
        """
        answer = self.call("embed", image_bytes=[contents])
        _check_read(answer["status"])
        found = self._index.search(
            answer["embedding"],
            k,
            exclude_ids=None if without is None else [without],
            where=None if label is None else {"label": label},
        )
        count = int(found.counts[0])
        places = found.ids[0, :count].tolist()
        distances = found.distances[0, :count].tolist()
        return [
            Neighbor(place, str(self.labels[place]), self.ids[place], distance)
            for place, distance in zip(places, distances, strict=True)
        ]

    def explain(
        self, query: bytes, neighbors: list[bytes]
    ) -> dict[str, np.ndarray]:
        """Splits the similarity of an image to others by prototype.

        Returns the arrays of `gsp.retrieval.Explanation`.
        """
        if not self.can_explain:
            raise ValueError(
                self.metadata.get("no_explain", "This export cannot explain.")
            )
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
