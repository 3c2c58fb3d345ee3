"""Searches with images: `python -m training.search saved_models/NAME IMAGE`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.export import DEFAULT_FOLDER


@dataclass(frozen=True)
class SearchCommand:
    """Finds the nearest gallery images of each image."""

    model: Annotated[Path, tyro.conf.Positional]
    """Exported retriever, or the run directory it was exported from."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """JPEG or PNG files."""
    ann: bool = False
    """Search with ScaNN, in an export that has it."""
    top: int | None = None
    """Neighbors to show; by default all that the export returns."""
    picture: Path | None = None
    """PNG file to draw queries and neighbors into."""
    weights: bool = False
    """picture: below each image, how much each of its places counts."""
    explain: Path | None = None
    """PNG file that shows why the first image's nearest neighbor is near."""

    def __post_init__(self) -> None:
        if not self.images:
            raise ValueError("`images` must name a file. Received: none.")
        if self.weights and self.picture is None:
            raise ValueError(
                "`weights` must come with a picture. Received: weights=True, "
                "picture=None."
            )
        if self.top is not None and self.top < 1:
            raise ValueError(
                f"`top` must be at least 1. Received: top={self.top}."
            )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        command = tyro.cli(
            SearchCommand,
            prog="python -m training.search",
            description=__doc__,
            args=arguments,
        )
        folder = exported_folder(command.model)
        contents = [_read(path) for path in command.images]
        answered = _search(command, folder, contents)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if not answered:
        sys.exit("error: not one of the images could be read")


def exported_folder(path: Path) -> Path:
    """The SavedModel at a path, or of the run at a path.

    Raises:
        FileNotFoundError: there is none.
    """
    for folder in (path, DEFAULT_FOLDER / path.name):
        if (folder / "saved_model.pb").is_file():
            return folder
    raise FileNotFoundError(
        f"`model` must be an exported retriever. Received: {path}, without "
        "saved_model.pb. Export a run with "
        f"`python -m training.export {path} --index exact`."
    )


def neighbor_lines(name: str, answer: dict, row: int, top: int) -> list[str]:
    """One line for each neighbor of an image, or what is wrong with it."""
    status = answer["status"][row].decode()
    if status != "ok":
        return [f"{name}: {status}"]
    lines = [name]
    for rank in range(min(top, int(answer["counts"][row]))):
        label = answer["labels"][row][rank].decode()
        id_ = answer["ids"][row][rank].decode()
        distance = answer["distances"][row][rank]
        line = f"{rank + 1:4}  {distance:8.4f}  {label:20}  {id_}"
        if "is_match" in answer and not answer["is_match"][row][rank]:
            line += "  (no match)"
        lines.append(line)
    return lines


def _search(command, folder, contents):
    """Prints the table and draws the pictures; says whether all failed."""
    model, signatures = _loaded(folder, command)
    import tensorflow as tf

    search = signatures["search_ann" if command.ann else "search_exact"]
    answer = search(image_bytes=tf.constant(contents))
    answer = {name: value.numpy() for name, value in answer.items()}
    top = command.top or answer["ids"].shape[1]
    for row, path in enumerate(command.images):
        print("\n".join(neighbor_lines(str(path), answer, row, top)))
    is_read = answer["status"] == b"ok"
    if command.picture is not None and is_read.any():
        from training.pictures.search_results import draw_search_results

        draw_search_results(
            command.picture,
            contents,
            answer,
            folder,
            top,
            signatures["explain"] if command.weights else None,
        )
        print(f"{command.picture}: drawn")
    if command.explain is not None and is_read[0]:
        from training.pictures.explanation import draw_explanation

        draw_explanation(
            command.explain, signatures["explain"], contents[0], answer, folder
        )
        print(f"{command.explain}: drawn")
    # The functions of a SavedModel live as long as the model does.
    del model
    return bool(is_read.any())


def _loaded(folder, command):
    from keras_gsp.storage.checksums import verify_checksums
    from training.artefacts.served_export import export_facts, load_export

    verify_checksums(folder)
    facts = export_facts(folder)
    if command.ann and "search_ann" not in facts["signatures"]:
        raise ValueError(
            "`ann` must be left out: the export has no ScaNN index. "
            f"Received: {folder}."
        )
    if "search_exact" not in facts["signatures"]:
        raise ValueError(
            "`model` must be exported with an index. "
            f"Received: {folder}, which holds an encoder alone."
        )
    is_explained = command.explain is not None or command.weights
    if is_explained and "explain" not in facts["signatures"]:
        raise ValueError(
            "`explain` and `weights` must be left out: of this encoder no "
            "part of the similarity is a prototype's. "
            f"Received: {folder}. "
            f"{facts.get('no_explain', '')}".strip()
        )
    model = load_export(folder)
    return model, model.signatures


def _read(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"`images` must be files. Received: {path}, which is none."
        )
    return path.read_bytes()


if __name__ == "__main__":
    main()
