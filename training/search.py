"""Searches with images: `python -m training.search saved_models/NAME IMAGE`.

A collection that `Retriever.save` wrote is first brought in step with the
photographs in `--data-dir`, and saved. `--encoder` makes it, the first time:
`python -m training.search COLLECTION IMAGE --data-dir PHOTOS --encoder RUN`.
"""

import json
import os
import textwrap
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from training.pictures.framed_image import (
    GRAY,
    draw_image,
    encoded_image,
)
from training.pictures.palette import BLACK, BLUE, VERMILION, picture
from training.recipes.settings import positive
from training.runs.command_line import run_command

DEFAULT_FOLDER = Path("saved_models")
# Images of an export that have no files, in the order of the gallery.
IMAGES = "gallery_images.npz"
TILE = 1.5  # side of a drawn image, inches


@dataclass(frozen=True)
class SearchCommand:
    """Finds the nearest gallery images of each image."""

    model: Annotated[Path, tyro.conf.Positional]
    """Exported retriever, the run directory it was exported from, or the folder
    of a collection."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """JPEG, PNG, BMP or WebP files."""
    data_dir: str | None = None
    """Folder, list or archive with the gallery's images, to show them; by
    default that of the run in `runs`. Of a collection: its photographs."""
    encoder: Path | None = None
    """Run directory, or the file of an encoder that ends in .keras, for a
    collection that is not there yet."""
    top: Annotated[int | None, positive] = None
    """Neighbors to show; by default all that the export returns."""
    picture: Path | None = None
    """PNG file to draw queries and neighbors into; with the export's match
    threshold, matches are framed in blue."""

    def __post_init__(self) -> None:
        if not self.images:
            raise ValueError("`images` must name a file. Received: none.")
        if self.encoder and self.data_dir is None:
            raise ValueError(
                "`data_dir` must name the photographs for `encoder`. "
                "Received: data_dir=None."
            )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("search", __doc__, SearchCommand, _run, arguments)


def _run(command):
    for path in command.images:
        if not path.is_file():
            hint = f"a folder; give its files: {path}/*.jpg"
            raise FileNotFoundError(
                f"`images` must be files. Received: {path}, which is "
                f"{hint if path.is_dir() else 'none'}."
            )
    search = _opened(command)
    contents = [path.read_bytes() for path in command.images]
    answer = search.search(contents)
    top = command.top or answer["ids"].shape[1]
    for row, path in enumerate(command.images):
        _print_neighbors(path, answer, row, top)
    if not (answer["status"] == b"ok").any():
        raise ValueError("none of the images could be read")
    if command.picture is not None:
        _draw(command.picture, search, contents, answer, top)
        print(f"{command.picture}: written")
    if search.is_augmented:
        print(
            "Ordered by rows that were mixed with their neighbors; distances "
            "are those of the original rows."
        )


def _opened(command) -> Any:
    """The collection, or the export at a path or of the run there."""
    if command.encoder or (command.model / "current.json").is_file():
        return CollectionSearch(command)
    for folder in (command.model, DEFAULT_FOLDER / command.model.name):
        if (folder / "saved_model.pb").is_file():
            return ExportSearch(folder, command.data_dir)
    way_out = f"Export a run: python -m training.export {command.model}"
    if not command.model.exists():
        way_out = "It does not exist"
        if command.data_dir:
            way_out += "; give --encoder to make a collection"
    raise FileNotFoundError(
        "`model` must be an exported retriever, its run, or a collection. "
        f"Received: {command.model}. {way_out}."
    )


def _print_neighbors(path, answer, row, top):
    """Prints a line for each neighbor, or why the image was not read."""
    status = answer["status"][row].decode()
    if status != "ok":
        print(f"{path}: {status}")
        return
    print(path)
    count = min(top, int(answer["counts"][row]))
    for rank in range(count):
        label = _text(answer["labels"][row][rank])
        id_ = _text(answer["ids"][row][rank])
        distance = answer["distances"][row][rank]
        line = f"{rank + 1:4}  {distance:8.4f}  {label:20}  {id_}"
        if "is_match" in answer and not answer["is_match"][row][rank]:
            line += "  (no match)"
        print(line)


def _text(value):
    """A label or an id of an export, bytes or a number, as text."""
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
        self.ids = [_text(value) for value in gallery["ids"].numpy()]

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


class CollectionSearch:
    """Answers as `ExportSearch` does, from what `Retriever.save` wrote.

    Embeds what came or changed in `data_dir`, forgets what is gone, saves and
    says so. `encoder` makes a collection in an empty `model`; later it must be
    the same.
    """

    def __init__(self, command: SearchCommand) -> None:
        from keras_gsp.retrieval import ExactIndex, Retriever
        from keras_gsp.retrieval.space import check_space
        from keras_gsp.storage.one_process import one_process
        from keras_gsp.storage.whole import check_version
        from training.runs.scoring import load_encoder

        path, folder = command.model, command.data_dir
        encoder: Any = command.encoder and load_encoder(command.encoder)
        self.k = command.top or 10
        check_version(path, overwrite=True)
        with one_process(path):
            if (path / "current.json").is_file():
                self.retriever = Retriever.load(path, folder=folder)
                if encoder is not None:
                    check_space(encoder, self.retriever.index)
            else:
                self.retriever = Retriever(encoder, ExactIndex(), folder=folder)
            if folder is not None:
                self._follow(path)
        self.is_augmented = self.retriever.index.augmentation is not None

    def _follow(self, path):
        """Brings the collection in step and saves what was done."""
        retriever, before = self.retriever, len(self.retriever)
        try:
            changes = retriever.sync()
        except KeyboardInterrupt:
            if len(retriever):  # The next call goes on from here.
                retriever.save(path, overwrite=True)
            raise
        is_other = changes.added or changes.changed or len(retriever) != before
        if len(retriever) and is_other:
            retriever.save(path, overwrite=True)
        print(f"{path}: {changes}")
        for name, reason in changes.failed.items():
            print(f"{name}: {reason}")

    def search(self, image_bytes: list[bytes]) -> dict[str, np.ndarray]:
        """Returns what an export's signature `"search"` does."""
        index = self.retriever.index
        rows = np.zeros((len(image_bytes), index.embedding_size or 0))
        status = [b"ok"] * len(rows)
        for number, content in enumerate(image_bytes):
            try:
                rows[number] = self.retriever.embed(content)
            except ValueError as error:
                status[number] = str(error).encode()
        neighbors = index.search(rows, self.k)
        names = "ids", "labels", "distances", "counts", "is_match"
        answer = {name: getattr(neighbors, name) for name in names}
        answer = {k: v for k, v in answer.items() if v is not None}
        return answer | {"status": np.array(status)}

    def image(self, id_: str) -> bytes | None:
        """Returns the file of an item, None where it is missing."""
        file = self.retriever.path(id_)
        return None if file is None else file.read_bytes()


def _draw(path, search, queries, answer, top):
    """Draws a row for each query, an encoded image, and `top` neighbors.

    The frame of a neighbor is solid and blue for a match, dashed and orange
    for others, gray without a threshold.
    """
    shown = min(top, int(answer["counts"].max()))
    # The first column, apart from the others, is the query.
    widths = [1.0, 0.25, *[1.0] * shown]
    with picture(
        *(path, len(queries), len(widths)),
        figsize=(TILE * sum(widths), (TILE + 0.75) * len(queries)),
        gridspec_kw={"width_ratios": widths},
    ) as axes:
        for axis in axes.flat:
            axis.axis("off")
        for row, query in enumerate(queries):
            is_read = answer["status"][row] == b"ok"
            title = "query" if is_read else "unreadable"
            draw_image(axes[row][0], query, None, title, BLACK, 3)
            for rank in range(min(shown, int(answer["counts"][row]))):
                id_, label = (
                    _text(answer[key][row][rank]) for key in ("ids", "labels")
                )
                color, style = GRAY, "-"
                if "is_match" in answer:
                    is_match = answer["is_match"][row][rank]
                    color = BLUE if is_match else VERMILION
                    style = "-" if is_match else "--"
                title = f"{_short(label)}\n{answer['distances'][row][rank]:.3f}"
                axis, image = axes[row][rank + 2], search.image(id_)
                draw_image(axis, image, None, title, color, 3, style)


def _short(name):
    """The letter alone where a class is a letter and its Unicode name."""
    letter, _, rest = name.partition(" ")
    if len(letter) == 1 and unicodedata.name(letter, "") == rest:
        return letter
    # Lines may also end at an underscore, as names of folders have them.
    return textwrap.fill(name.replace("_", "_ "), 16).replace("_ ", "_")


if __name__ == "__main__":
    main()
