"""A folder of photographs, searched by photographs."""

import io
import itertools
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_gsp.data.image_set import image_folder
from keras_gsp.data.listed_files import image_root
from keras_gsp.data.preprocessing import preprocessing_of
from keras_gsp.retrieval.index.columns import blocks_of, checked_items
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.faiss_index import FaissIndex
from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.scann_index import ScannIndex
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.saved_files import INDEX, verified_facts
from keras_gsp.retrieval.serving.artefact_facts import (
    exported_facts,
    write_facts,
)
from keras_gsp.retrieval.serving.canaries import MOST, MOVED, Canaries, moves
from keras_gsp.retrieval.serving.export import export_retriever
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder, boxes_of
from keras_gsp.retrieval.space import check_space
from keras_gsp.storage.whole import reading, whole_version

ENCODER, GALLERY = "encoder.keras", "index"
_KINDS = {one.kind: one for one in (ExactIndex, FaissIndex, ScannIndex)}
# Files that are read, decoded and embedded at once.
BLOCK = 64


class Retriever:
    """Finds photographs like a photograph: an encoder and its index.

    Ids are paths relative to the folder, `"cats/1.jpg"`; the label of a file
    is its folder, `"cats"`, the empty string at the top. Images are read as
    the encoder expects, by Pillow, on every backend.

    Args:
        encoder: built Keras model, images to embeddings.
        index: any index of the encoder's embeddings with strings as ids, or
            an empty one.
        folder: folder of the photographs. `None`: ids are paths as given.
        **options: `image_size`, `crop_fraction`, `max_pixels`, as for
            `export_encoder`.

    Raises:
        ValueError: an index of another encoder; what `export_encoder` refuses.

    Example:

    ```python
    import pathlib, tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    photos = pathlib.Path(tempfile.mkdtemp())
    for number, name in enumerate(("cat", "dog")):
        (photos / name).mkdir()
        pixels = np.full((40, 50, 3), 100 * number, "uint8")
        keras.utils.save_img(photos / name / "1.png", pixels, scale=False)
    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    retriever = gsp.retrieval.Retriever.from_folder(photos, encoder)
    found = retriever.search(photos / "dog" / "1.png", k=2)
    assert found.ids.tolist() == [["dog/1.png", "cat/1.png"]]
    assert found.labels[0, 0] == "dog"
    ```
    """

    def __init__(
        self,
        encoder: keras.Model,
        index: SearchIndex,
        *,
        folder: str | Path | None = None,
        **options: Any,
    ) -> None:
        self._served = ServedEncoder(
            encoder, index, needs_tensorflow=False, **options
        )
        self._options = options
        self.encoder, self.index = encoder, index
        self.folder = None
        if folder is not None:
            self.folder = Path(os.path.abspath(image_root(folder)))

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        encoder: keras.Model,
        *,
        index: SearchIndex | None = None,
        **options: Any,
    ) -> Self:
        """Embeds all images below a folder, once, into an empty index.

        By default into an `ExactIndex`; `options` are those of the class. No
        image there is a `FileNotFoundError`.
        """
        index = ExactIndex() if index is None else index
        retriever = cls(encoder, index, folder=path, **options)
        retriever.add(image_folder(path).paths or ())
        return retriever

    def __len__(self) -> int:
        return len(self.index)

    def search(
        self,
        query: Any,
        k: int = 10,
        *,
        box: Any = None,
        **options: Any,
    ) -> Neighbors:
        """Finds the photographs most like one photograph, or several.

        Args:
            query: name of an image file, its bytes, a PIL image, pixels
                (height, width, channels), uint8, or a list of these. A list of
                lists, of one length, has several photographs of each thing: an
                item is as near as the nearest of them.
            k: number of neighbors, at least 1.
            box: part to search with, in pixels of the upright image: x, y,
                width, height, of all photographs or one for each. It is cut
                as whole images are, by default to the central square.
            **options: those of the index's `search`: `group_by`, `where`, ...

        Raises:
            FileNotFoundError: no such file.
            ValueError: an image that cannot be read, a box outside of it, of
                less than a pixel or not of four numbers; things of different
                numbers of photographs.
        """
        queries = query if isinstance(query, list | tuple) else [query]
        lengths = {
            len(x) if isinstance(x, list | tuple) else None for x in queries
        }
        if len(lengths) > 1 or 0 in lengths:
            raise ValueError(
                "`query` must have as many photographs of each thing. "
                f"Received: {sorted(map(str, lengths))}."
            )
        several = next(iter(lengths), None)
        if several:
            queries = list(itertools.chain.from_iterable(queries))
        rows = self.embed(queries, box=box)
        if several:
            rows = rows.reshape(-1, several, rows.shape[1])
        return self.index.search(rows, k, **options)

    def embed(self, images: Any, *, box: Any = None) -> np.ndarray:
        """Embeds a list of images, as for `search`; (images, size), float32."""
        if isinstance(images, str | Path | bytes):
            images = [images]
        embeddings, status = self._embedded(images, box)
        for number, word in enumerate(status):
            if word != "ok":
                name = images[number]
                if not isinstance(name, str | Path):
                    name = f"image {number}"
                raise ValueError(
                    "Images must be whole JPEG, PNG, BMP or WebP files that "
                    f"hold their `box`. Received: {name}: {word}."
                )
        return embeddings

    def add(
        self,
        files: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        boxes: Any = None,
    ) -> None:
        """Adds photographs, or replaces those with the same ids.

        Names of files that cannot be read are left out, with a warning that
        names them; if all are, it is a `ValueError`. `labels` are by default
        the names of their folders, `attributes` as for `upsert` of an index,
        `boxes` the part of each, as for `search`.
        """
        files = [files] if isinstance(files, str | Path) else list(files)
        if not files:
            raise ValueError("`files` must hold an image. Received: no file.")
        ids = [self._id(file) for file in files]
        if labels is None:
            parents = [Path(name).parent.as_posix() for name in ids]
            labels = ["" if one == "." else one for one in parents]
        nothing = np.zeros((len(ids), 1))
        columns = checked_items(nothing, labels, ids, attributes)[1]
        embeddings, status = self._embedded(files, boxes)
        is_read = np.array(status, object) == "ok"
        pairs = zip(ids, status, strict=True)
        bad = [f"{name} ({one})" for name, one in pairs if one != "ok"]
        words = "; ".join(bad[:5])
        if len(bad) == len(files):
            raise ValueError(
                "`files` must hold an image that can be read. "
                f"Received: {words}."
            )
        if bad:
            text = f"{len(bad)} of {len(files)} files cannot be read: {words}"
            warnings.warn(text, stacklevel=2)
        is_first = not len(self.index)
        columns = {name: column[is_read] for name, column in columns.items()}
        kept, known = columns.pop("id"), columns.pop("label")
        self.index.upsert(embeddings[is_read], known, kept, columns)
        if is_first:
            self.index.space = self._served.space
            if isinstance(self.index, GalleryIndex):
                self.index.preprocessing = preprocessing_of(self.encoder)

    def delete(self, ids: Any) -> int:
        """Removes photographs by id and returns their number."""
        return self.index.delete(ids)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes encoder, index and canaries, not the photographs.

        A `MilvusIndex`, which lives elsewhere, is a `TypeError`.
        """
        index = self._in_memory()
        check_space(self.encoder, index)
        with whole_version(path, overwrite=overwrite) as folder:
            self.encoder.save(folder / ENCODER)
            (folder / GALLERY).mkdir()
            index.write_files(folder / GALLERY)
            if canaries := self._canaries():
                Canaries.of(self._served, index, canaries).save(folder)
            facts = exported_facts(self._served) | {"options": self._options}
            write_facts(folder, facts | {"gallery_size": len(index)})

    @classmethod
    def load(
        cls, path: str | Path, *, folder: str | Path | None = None
    ) -> Self:
        """Reads what `save` wrote; `folder` is where the photographs are."""
        with reading(path) as saved:
            options = verified_facts(saved).get("options")
            if options is None:
                raise FileNotFoundError(
                    "`path` must hold what `Retriever.save` wrote. "
                    f"Received: {str(path)!r}."
                )
            encoder = keras.saving.load_model(saved / ENCODER, compile=False)
            facts = (saved / GALLERY / INDEX).read_text(encoding="utf-8")
            index = _KINDS[json.loads(facts)["kind"]].load(saved / GALLERY)
        return cls(encoder, index, folder=folder, **options)

    def export(self, path: str | Path, **options: Any) -> None:
        """Writes a SavedModel that searches; options of `export_retriever`."""
        index = self._in_memory()
        if "canaries" not in options:
            options["canaries"] = self._canaries()
        options = {**self._options, **options}
        export_retriever(self.encoder, index, path, **options)

    def _in_memory(self):
        if not isinstance(self.index, GalleryIndex):
            raise TypeError(
                "`index` must be in memory to be saved or exported: "
                "ExactIndex, FaissIndex or ScannIndex. Received: "
                f"{type(self.index).__name__}."
            )
        return self.index

    def _canaries(self):
        """Some gallery files by id, `None` where they are not here."""
        ids, root = self.index.ids(), self.folder or Path()
        ids = ids[:: -(-len(ids) // MOST) or 1].tolist()
        files = {k: root / k for k in ids if (root / k).is_file()}
        if not files:
            if ids:
                warnings.warn(
                    "There are no canaries: photographs by the ids of the "
                    f"index are not in folder={str(root)!r}.",
                    stacklevel=3,
                )
            return None
        # Items may be boxes of their files.
        found, _ = self._embedded([*files.values()])
        stored = self.index.items([*files])[0]
        is_same = moves(found, stored) <= MOVED
        if not is_same.all():
            warnings.warn(
                f"{(~is_same).sum()} of {len(files)} files are not embedded as "
                "in the index, perhaps for boxes; they are no canaries.",
                stacklevel=3,
            )
        return dict(itertools.compress(files.items(), is_same)) or None

    def _id(self, file):
        """The path below the folder, or as it is given."""
        if self.folder is not None:
            file = Path(file)
            for real in (os.path.abspath, os.path.realpath):
                place, root = Path(real(file.parent)), real(self.folder)
                if place.is_relative_to(root):
                    return (place / file.name).relative_to(root).as_posix()
        return Path(file).as_posix()

    def _embedded(self, images, box=None):
        """Embeddings and status of each image, a block at a time."""
        nothing = np.zeros((0, self._served.embedding_size), "float32")
        rows, status = [nothing], []
        size = 1 if None in self._served.image_shape else BLOCK
        boxes = boxes_of(box, len(images))
        for some in blocks_of(np.arange(len(images)), size):
            contents = [_contents(images[i]) for i in some]
            found, words = self._served.embedded_files(contents, boxes[some])
            rows.append(found)
            status += words
        return np.concatenate(rows), status


def _contents(image):
    """The bytes of an image file; pixels become a PNG file."""
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, str | Path):
        return Path(image).read_bytes()
    from PIL import Image, ImageOps

    if hasattr(image, "getexif"):
        if image.mode[0] in "IF":
            raise TypeError(
                "A PIL image must have 8 bits a channel. Received: "
                f"mode={image.mode!r}."
            )
        has_alpha = "A" in image.mode or "transparency" in image.info
        image = ImageOps.exif_transpose(image)
        image = image.convert("RGBA" if has_alpha else "RGB")
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise TypeError(
            "An image must be a file name, bytes, a PIL image or pixels "
            "(height, width, channels), uint8. Received: "
            f"{pixels.dtype} of shape {pixels.shape}."
        )
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
