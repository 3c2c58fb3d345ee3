"""Searches an export in ways its signatures leave open: any k, one class."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.artefacts.served_export import export_facts, load_export
from training.pictures.gallery_images import gallery_bytes


@dataclass(frozen=True)
class Found:
    """A gallery image that a search returned.

    Args:
        position: Its place in the gallery.
        label: Its class.
        name: Its id.
        distance: Euclidean distance to the query.
    """

    position: int
    label: str
    name: str
    distance: float


class ExportSearch:
    """A loaded export, its gallery at hand.

    Args:
        folder: The export, with an index.

    Raises:
        ValueError: an export without a gallery.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.facts = export_facts(self.folder)
        signatures = self.facts.get("signatures", [])
        if "search_exact" not in signatures:
            raise ValueError(
                "`model` must be exported with an index. "
                f"Received: {folder}, which holds an encoder alone."
            )
        self._model = load_export(self.folder)
        gallery = self._model.gallery_variables
        self.labels = np.array(
            [label.decode() for label in gallery["labels"].numpy()]
        )
        self.ids = [id_.decode() for id_ in gallery["ids"].numpy()]
        # An export fills its rows up with some that are no image's.
        self._rows = gallery["rows"].numpy()[: len(self.ids)]
        # An export of an earlier version keeps it in the graph alone.
        origin = dict(gallery).get("origin")
        self._origin = None if origin is None else origin.numpy()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def crop_fraction(self) -> float:
        """Side of the square that is embedded, of the shorter side."""
        return float(self.facts.get("crop_fraction", 1.0))

    @property
    def most_neighbors(self) -> int:
        """The largest k."""
        if self._origin is None:
            return int(self.facts["neighbors"])
        return len(self)

    @property
    def threshold(self) -> float | None:
        """Distance up to which a neighbor is a match, where it is known."""
        known = self.facts.get("match_threshold")
        if isinstance(known, dict):
            known = known.get("distance")
        return float(known) if isinstance(known, int | float) else None

    @property
    def can_explain(self) -> bool:
        """Whether the export splits similarities."""
        return "explain" in self.facts["signatures"]

    def full_weight(self, places: int) -> float | None:
        """The weight of a feature that is pooled wholly, where it is known.

        Args:
            places: Number of features of an image.
        """
        recipe = self.facts.get("recipe") or {}
        if recipe.get("pooling") != "gsp" or recipe.get("learn_ratio"):
            return None
        return 1 / (places * recipe["transport_ratio"])

    def image(self, position: int) -> bytes | None:
        """The file of a gallery image, None where it is there no more."""
        return gallery_bytes(self.folder, self.ids[position])

    def search(
        self,
        contents: bytes,
        k: int,
        label: str | None = None,
        without: int | None = None,
    ) -> list[Found]:
        """Finds the gallery images nearest to an image.

        Args:
            contents: An encoded image.
            k: How many, at least 1.
            label: The only class to look in; all by default.
            without: Position of an image to leave out: the query's own.

        Raises:
            ValueError: an image that the export cannot read.
        """
        if self._origin is None:
            return self._as_exported(contents, k, label, without)
        answer = self._call("embed", image_bytes=[contents])
        _check_read(answer["status"][0])
        query = answer["embedding"][0] - self._origin
        distances = np.sqrt(
            np.square(self._rows - query).sum(axis=1, dtype="float64")
        )
        if label is not None:
            distances[self.labels != label] = np.inf
        if without is not None:
            distances[without] = np.inf
        order = np.argsort(distances, kind="stable")[:k]
        return [
            self._found(int(place), float(distances[place]))
            for place in order
            if np.isfinite(distances[place])
        ]

    def explain(self, query: bytes, neighbors: list[bytes]) -> dict[str, Any]:
        """Splits the similarity of an image and others.

        Returns:
            The arrays of `gsp.retrieval.Explanation`.

        Raises:
            ValueError: an export that does not explain, or an unreadable
                image.
        """
        if not self.can_explain:
            raise ValueError(
                self.facts.get("no_explain", "This export does not explain.")
            )
        answer = self._call(
            "explain",
            query_bytes=[query] * len(neighbors),
            neighbor_bytes=neighbors,
        )
        for status in (*answer["query_status"], *answer["neighbor_status"]):
            _check_read(status)
        return answer

    def _as_exported(self, contents, k, label, without):
        """What the export's own search returns, and of it the class."""
        answer = self._call("search_exact", image_bytes=[contents])
        _check_read(answer["status"][0])
        places = {id_: place for place, id_ in enumerate(self.ids)}
        found = [
            self._found(places[id_.decode()], float(distance))
            for id_, distance in zip(
                answer["ids"][0][: answer["counts"][0]],
                answer["distances"][0],
                strict=False,
            )
        ]
        return [
            one
            for one in found
            if label in (None, one.label) and one.position != without
        ][:k]

    def _found(self, place, distance):
        label = str(self.labels[place])
        return Found(place, label, self.ids[place], distance)

    def _call(self, signature, **inputs):
        import tensorflow as tf

        answer = self._model.signatures[signature](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        return {name: value.numpy() for name, value in answer.items()}


def _check_read(status):
    if status != b"ok":
        raise ValueError(f"The image is {status.decode()}.")
