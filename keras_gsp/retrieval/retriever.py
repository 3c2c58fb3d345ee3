"""A folder of photographs, searched by photographs."""

import dataclasses
import io
import itertools
import json
import os
import unicodedata
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_gsp.data.image_set import checked_boxes, image_folder
from keras_gsp.data.listed_files import image_root
from keras_gsp.data.preprocessing import preprocessing_of
from keras_gsp.retrieval.augmentation import NeighborAugmentation
from keras_gsp.retrieval.folder_changes import (
    FolderChanges,
    Version,
    folder_changes,
    image_versions,
)
from keras_gsp.retrieval.index.columns import blocks_of, checked_items
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.faiss_index import FaissIndex
from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.scann_index import ScannIndex
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.serving.artefact_facts import (
    MOST,
    MOVED,
    Canaries,
    exported_facts,
    moves,
    write_facts,
)
from keras_gsp.retrieval.serving.export import export_retriever
from keras_gsp.retrieval.serving.served_encoder import OK, ServedEncoder
from keras_gsp.retrieval.space import check_space
from keras_gsp.retrieval.upgrade import (
    Upgrade,
    certified_map,
    index_for_upgrade,
)
from keras_gsp.storage.checksums import INDEX, verified_facts
from keras_gsp.storage.whole import reading, whole_version

ENCODER, GALLERY, VERSIONS = "encoder.keras", "index", "versions.json"
_ENGINES = {
    engine.kind: engine for engine in (ExactIndex, FaissIndex, ScannIndex)
}
# Files of which `sync` adds the embeddings at once.
SYNCED = 256
# Items by which `upgrade` fits its map.
SAMPLED = 4096


class Retriever:
    """Finds photographs like a photograph: an encoder and its index.

    Ids are paths relative to the folder, `"cats/1.jpg"`, of files elsewhere
    the whole path; the label of a file is its folder, `"cats"`, the empty
    string at the top. Images are read as the encoder expects, on every backend.

    Args:
        encoder: built Keras model, images to embeddings.
        index: any index of the encoder's embeddings with strings as ids, or
            an empty one.
        folder: folder of the photographs. `None`: ids are paths as given.
        augmentation: `NeighborAugmentation` that decides the order of what is
            found. `None`: the index's own, if any.

    Raises:
        ValueError: an index of another encoder; what `export_encoder` refuses.

    Example:

    ```python
    import pathlib, tempfile

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
        augmentation: NeighborAugmentation | None = None,
    ) -> None:
        self._served = ServedEncoder(encoder, index)
        self.encoder, self.index = encoder, index
        if augmentation not in (None, index.augmentation):
            index.augmentation = augmentation
        self.folder: Path | None = None
        # Of the files that were embedded whole; `None` while they are.
        self._versions: dict[str, Version | None] = {}
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
        with warnings.catch_warnings():
            # Labels are of no use to a search: a flat folder is as good.
            warnings.filterwarnings("ignore", ".* images lie in ")
            images = image_folder(path)
        retriever.add(images.paths)
        return retriever

    def __len__(self) -> int:
        return len(self.index)

    def search(
        self,
        query: Any = None,
        k: int = 10,
        *,
        box: Any = None,
        like: Any = None,
        unlike: Any = None,
        **options: Any,
    ) -> Neighbors:
        """Finds the photographs most like one photograph, or several.

        Args:
            query: name of an image file or id of an item, bytes of a file, a
                PIL image, pixels (height, width, channels), uint8, or a list
                of these. A list of lists, of one length, has several
                photographs of each thing: an item is as near as the nearest of
                them. May be `None` beside `like`.
            k: number of neighbors, at least 1.
            box: part to search with, in pixels of the upright image: x, y,
                width, height, of all photographs or one for each. It is cut
                as whole images are, by default to the central square.
            like: photographs, as for `query`, to find more of.
            unlike: photographs to find fewer of.
            **options: those of the index's `search`: `group_by`, `where`,
                `within`, `diversity`, ...

        Raises:
            FileNotFoundError: neither such a file nor such an id.
            ValueError: an image that cannot be read, a box outside of it, of
                less than a pixel or not of four numbers; things of different
                numbers of photographs.
        """
        for name, examples in (("like", like), ("unlike", unlike)):
            if examples is not None:
                options[name] = self._examples(examples)
        if query is None:
            return self.index.search(None, k, **options)
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
        embeddings, status = self._embedded(images, _boxes(box, len(images)))
        for number, word in enumerate(status):
            if word != OK:
                name = images[number]
                if not isinstance(name, str | Path):
                    name = f"image {number}"
                raise ValueError(
                    "Images must be whole files of a known format that hold "
                    f"their `box`, if any. Received: {name}: {word}."
                )
        return embeddings

    def path(self, name: Any) -> Path | None:
        """Returns the file of an id, `None` if it is not there."""
        root = self.folder or Path()
        for form in ("NFC", "NFD"):  # Ids are composed, names on disks both.
            file = root / unicodedata.normalize(form, str(name))
            if file.is_file():
                return file
        return None

    def add(
        self,
        files: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        boxes: Any = None,
    ) -> None:
        """Adds photographs, or replaces those with the same ids.

        `files` are names of files, or ids of items to embed again. Those that
        cannot be read are left out, with a warning that names them; if all are,
        it is a `ValueError`. `labels` are by default the names of their
        folders, `attributes` as for `upsert` of an index, `boxes` the part of
        each, as for `search`.
        """
        files = [files] if isinstance(files, str | Path) else list(files)
        if not files:
            raise ValueError("`files` must hold an image. Received: no file.")
        ids = [self._id(file) for file in files]
        if labels is None:
            labels = [_label(name) for name in ids]
        nothing = np.zeros((len(ids), 1))
        columns = checked_items(nothing, labels, ids, attributes)[1]
        states = [os.stat(self._file(file)) for file in files]
        versions = [(state.st_size, state.st_mtime_ns) for state in states]
        rows, status = self._embedded(files, _boxes(boxes, len(files)))
        pairs = zip(ids, status, strict=True)
        bad = [f"{name} ({word})" for name, word in pairs if word != OK]
        text = (
            f"{len(bad)} of {len(files)} cannot be read: {'; '.join(bad[:5])}"
        )
        if len(bad) == len(files):
            raise ValueError(f"`files` must hold an image. Received: {text}.")
        if bad:
            warnings.warn(f"Files are left out: {text}.", stacklevel=2)
        self._put(rows, status, columns)
        for name, word, version in zip(ids, status, versions, strict=True):
            self._versions.pop(name, None)
            if word == OK and boxes is None and not os.path.isabs(name):
                self._versions[name] = version

    def delete(self, ids: Any) -> int:
        """Removes photographs by id and returns their number."""
        return self.index.delete(ids)

    def sync(self, folder: str | Path | None = None) -> FolderChanges:
        """Brings the index in step with the files of the folder.

        Embeds files that are new, that could not be read before, and whose
        size or time has changed, with their labels and attributes, and deletes
        the items of files that are gone. Items of other places, and boxes of
        files, stay. An interrupted call is finished by the next one, also if it
        was saved in between. It changes what is in memory: `save` it.

        Args:
            folder: where the photographs are now; `None`: as before.

        Returns:
            `FolderChanges`: the names that were added, embedded again, deleted,
            and those that failed, with the reason. Its text is a sentence.

        Raises:
            FileNotFoundError: no folder, or one without any image of the
                index, as of a disk that is not mounted.
            ValueError: new files in an index with attributes: `add` them.
        """
        folder = self.folder if folder is None else folder
        if folder is None or not Path(folder).is_dir():
            raise FileNotFoundError(
                f"`folder` must be a folder. Received: {folder}."
            )
        folder = Path(os.path.abspath(image_root(folder)))
        present = image_versions(folder)
        ids = set(self.index.ids().tolist()) if len(self.index) else set()
        known = {k: v for k, v in self._versions.items() if k in ids}
        if known and not known.keys() & present.keys():
            raise FileNotFoundError(
                "`folder` must hold images of the index. Received: "
                f"{str(folder)!r} without one of its {len(known):,}; is it "
                "mounted, or another folder? `delete` removes items."
            )
        self.folder = folder
        # Of items without a version the file is unknown.
        others = ids - known.keys()
        changes = folder_changes(
            known, {k: v for k, (_, v) in present.items() if k not in others}
        )
        attributes = {*self.index._dtypes} - {"id", "label"} if ids else ()
        if changes.added and attributes:
            raise ValueError(
                f"`sync` must know the attributes {sorted(attributes)} of new "
                f"files: `add` them. Received: {changes.added[0]!r}, ..."
            )
        self.delete(list(changes.deleted))
        failed: dict[str, str] = {}
        for is_new, names in enumerate((changes.changed, changes.added)):
            for some in blocks_of(names, SYNCED):
                failed |= self._read_again(some, present, is_new)
        for name in (*changes.deleted, *failed):
            self._versions.pop(name, None)
        return dataclasses.replace(
            changes,
            added=tuple(x for x in changes.added if x not in failed),
            changed=tuple(x for x in changes.changed if x not in failed),
            failed=failed,
        )

    def _read_again(self, names, present, is_new):
        """Embeds files of the folder; what failed, with the reason."""
        labels: Any = [_label(name) for name in names]
        attributes: dict[str, Any] = {}
        if not is_new:
            found = self.index._searched.items(list(names))
            _, labels, ids, attributes = found
            names = ids.tolist()
        files = [Path(present[name][0]) for name in names]
        rows, status = self._served.embed(files)
        columns = checked_items(rows, labels, list(names), attributes)[1]
        pairs = zip(names, status, strict=True)
        failed = {name: word for name, word in pairs if word != OK}
        self._versions |= dict.fromkeys(names)  # if interrupted here: again
        self._put(rows, status, columns)
        self.delete(list(failed))  # What they held is another picture.
        self._versions |= {
            name: present[name][1] for name in names if name not in failed
        }
        return failed

    def upgrade(
        self, new_encoder: keras.Model, *, into: SearchIndex | None = None
    ) -> "Retriever":
        """Answers photographs of a new encoder from the old index, at once.

        A sample of the labeled files gives the map from the new space to the
        old one, as in `gsp.retrieval.upgrade`. The `index` of what is returned
        is an `Upgrade`: its `embed()` reads the files again, all or some, and
        its `cut_over()` returns the new index.

        Args:
            new_encoder: built Keras model, images to embeddings of any size.
            into: index for the new embeddings; see `gsp.retrieval.upgrade`.

        Raises:
            ValueError: fewer than 12 labels with two files that are there;
                what `gsp.retrieval.upgrade` refuses.
        """
        into = index_for_upgrade(self.index, self.encoder, new_encoder, into)
        upgraded = type(self)(new_encoder, into, folder=self.folder)
        upgraded._versions = dict(self._versions)
        ids = np.random.default_rng(0).permutation(self.index.ids())
        old, labels, ids, _ = self.index.items(ids[:SAMPLED])
        new, is_read = upgraded._embedded_files(ids)
        space_map, certificate = certified_map(
            old[is_read], new[is_read], labels[is_read]
        )
        index = Upgrade(self.index, into, space_map, new_encoder, certificate)
        index.embed_files = upgraded._embedded_files
        upgraded.index = index
        return upgraded

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes encoder, index and canaries, not the photographs.

        A `MilvusIndex`, which lives elsewhere, is a `TypeError`.
        """
        index = self._in_memory()
        check_space(self.encoder, index)
        with whole_version(path, overwrite=overwrite) as folder:
            self.encoder.save(folder / ENCODER)
            text = json.dumps(self._versions)
            (folder / VERSIONS).write_text(text, encoding="utf-8")
            (folder / GALLERY).mkdir()
            index.write_files(folder / GALLERY)
            if canaries := self._canaries():
                Canaries.of(self.embed, index, canaries).save(folder)
            facts = exported_facts(self._served)
            write_facts(folder, facts | {"gallery_size": len(index)})

    @classmethod
    def load(
        cls, path: str | Path, *, folder: str | Path | None = None
    ) -> Self:
        """Reads what `save` wrote; `folder` is where the photographs are."""
        with reading(path) as saved:
            verified_facts(saved)
            if not (saved / ENCODER).is_file():
                raise FileNotFoundError(
                    "`path` must hold what `Retriever.save` wrote. "
                    f"Received: {str(path)!r}."
                )
            encoder = keras.saving.load_model(saved / ENCODER, compile=False)
            text = (saved / GALLERY / INDEX).read_text(encoding="utf-8")
            index = _ENGINES[json.loads(text)["kind"]].load(saved / GALLERY)
            versions = json.loads((saved / VERSIONS).read_text("utf-8"))
        retriever = cls(encoder, index, folder=folder)
        retriever._versions = {k: v and tuple(v) for k, v in versions.items()}
        return retriever

    def export(self, path: str | Path, **options: Any) -> None:
        """Writes a SavedModel that searches; options of `export_retriever`."""
        index = self._in_memory()
        if "canaries" not in options:
            options["canaries"] = self._canaries()
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
        paths = {name: self.path(name) for name in ids}
        files = {name: file for name, file in paths.items() if file is not None}
        if not files:
            if ids:
                where = "without `folder`" if self.folder is None else root
                warnings.warn(
                    "There are no canaries: no photograph by the ids of the "
                    f"index was found ({where}).",
                    stacklevel=3,
                )
            return None
        # Items may be boxes of their files.
        found, _ = self._served.embed([*files.values()])
        stored = self.index.items([*files])[0]
        is_same = moves(found, stored) <= MOVED
        return dict(itertools.compress(files.items(), is_same)) or None

    def _put(self, rows, status, columns):
        """Adds the items whose status is "ok"."""
        is_read = np.array([word == OK for word in status])
        if not is_read.any():
            return
        is_first = not len(self.index)
        columns = {name: column[is_read] for name, column in columns.items()}
        ids, labels = columns.pop("id"), columns.pop("label")
        self.index.upsert(rows[is_read], labels, ids, columns)
        if is_first:
            self.index.space = self._served.space
            if isinstance(self.index, GalleryIndex):
                self.index.preprocessing = preprocessing_of(self.encoder)

    def _file(self, name):
        """The file of a name or of an id."""
        if not Path(name).is_file() and (file := self.path(name)) is not None:
            return file
        return Path(name)

    def _id(self, file):
        """The path below the folder, or as it is given."""
        file, root = self._file(file), self.folder
        if root is not None:
            for real in (os.path.abspath, os.path.realpath):
                folder, below = Path(real(file.parent)), real(root)
                if folder.is_relative_to(below):
                    file = (folder / file.name).relative_to(below)
                    return unicodedata.normalize("NFC", file.as_posix())
            file = Path(os.path.abspath(file))
        return file.as_posix()

    def _embedded_files(self, ids):
        """Embeddings of items' files, and which of them could be read."""
        files = [self.path(name) or b"" for name in ids.tolist()]
        rows, status = self._served.embed(files)
        is_read = np.array([word == OK for word in status], bool)
        if not is_read.all():
            warnings.warn(
                f"{(~is_read).sum()} of {len(ids)} files cannot be read: "
                f"{ids[~is_read][:5].tolist()}.",
                stacklevel=3,
            )
        return rows, is_read

    def _examples(self, examples):
        """Ids of items, or embeddings where some are none."""
        if not isinstance(examples, list | tuple):
            examples = [examples]
        if all(isinstance(one, str) for one in examples) and len(self.index):
            known = self.index.items(list(examples))[2].tolist()
            if set(known) == set(examples):
                return list(examples)
        return self.embed(examples)

    def _embedded(self, images, boxes=None):
        """Embeddings and status of each image; ids without a file are known."""
        stored, files = {}, []
        for number, image in enumerate(images):
            if not isinstance(image, str | Path):
                files.append(_contents(image))
                continue
            file = self._file(image)
            files.append(file)
            if file.is_file():
                continue
            if boxes is None and len(self.index):
                rows = self.index.items([str(image)])[0]
                if len(rows):
                    stored[number] = rows[0]
            if number not in stored:
                is_folder = file.is_dir()
                raise (IsADirectoryError if is_folder else FileNotFoundError)(
                    "An image must be a file or an id of the collection. "
                    f"Received: {str(image)!r}, which is "
                    f"{'a folder' if is_folder else 'neither'}."
                )
        rows, status = self._served.embed(files, boxes)
        for number, row in stored.items():
            rows[number], status[number] = row, OK
        return rows, status


def _label(name):
    """The folder of a file: its class."""
    parent = Path(name).parent.as_posix()
    return "" if parent == "." or os.path.isabs(name) else parent


def _boxes(box, count):
    """x, y, width and height, (count, 4), of one for all or one for each."""
    if box is None:
        return None
    boxes = np.asarray(box, "float64")
    if boxes.shape == (4,):
        boxes = np.broadcast_to(boxes, (count, 4))
    return checked_boxes(boxes, count)


def _contents(image):
    """The bytes of an image file; pixels become a PNG file."""
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    from PIL import Image, ImageOps

    if isinstance(image, Image.Image):
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
    squeezed = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    Image.fromarray(squeezed).save(file, "PNG", compress_level=1)
    return file.getvalue()
