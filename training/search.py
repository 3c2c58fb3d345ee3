"""Searches with images: `python -m training.search saved_models/NAME IMAGE`.

A collection that `Retriever.save` wrote is first brought in step with the
photographs in `--data-dir`, and saved. `--encoder` makes it, the first time:
`python -m training.search COLLECTION IMAGE --data-dir PHOTOS --encoder RUN`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from training.browsing.exports import ExportSearch, as_text, exported_folder
from training.recipes.settings import positive
from training.runs.command_line import run_command


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
    if command.encoder or (command.model / "current.json").is_file():
        from training.browsing.collection_search import CollectionSearch
        from training.runs.scoring import load_encoder

        encoder = command.encoder and load_encoder(command.encoder)
        search: Any = CollectionSearch(
            *(command.model, command.data_dir, encoder), k=command.top or 10
        )
    elif command.data_dir and not command.model.exists():
        raise FileNotFoundError(
            "`model` must be there, or `encoder` given to make a collection. "
            f"Received: {command.model}, which is not; give --encoder."
        )
    else:
        search = ExportSearch(exported_folder(command.model), command.data_dir)
    _search(command, search)
    if search.is_augmented:
        print(
            "Ordered by rows that were mixed with their neighbors; distances "
            "are those of the original rows."
        )


def _search(command, search):
    """Prints neighbors and draws."""
    contents = [path.read_bytes() for path in command.images]
    answer = search.search(contents)
    top = command.top or answer["ids"].shape[1]
    for row, path in enumerate(command.images):
        _print_neighbors(path, answer, row, top)
    is_read = answer["status"] == b"ok"
    if not is_read.any():
        raise ValueError("none of the images could be read")
    if command.picture is not None:
        from training.browsing.search_pictures import draw_search_results

        draw_search_results(command.picture, search, contents, answer, top)
        print(f"{command.picture}: written")


def _print_neighbors(path, answer, row, top):
    """Prints a line for each neighbor, or why the image was not read."""
    status = answer["status"][row].decode()
    if status != "ok":
        print(f"{path}: {status}")
        return
    print(path)
    count = min(top, int(answer["counts"][row]))
    for rank in range(count):
        label = as_text(answer["labels"][row][rank])
        id_ = as_text(answer["ids"][row][rank])
        distance = answer["distances"][row][rank]
        line = f"{rank + 1:4}  {distance:8.4f}  {label:20}  {id_}"
        if "is_match" in answer and not answer["is_match"][row][rank]:
            line += "  (no match)"
        print(line)


if __name__ == "__main__":
    main()
