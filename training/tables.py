"""Prints a study as Markdown: `python -m training.tables runs/birds50`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.protocols.report import spread
from training.recipes.recipe import PAIR_LOSSES, PROXY_LOSSES
from training.recipes.studies import METHODS
from training.results.published_results import read_published_results
from training.runs.run_directory import RunDirectory

MEASURES = {
    "precision_at_1": "P@1",
    "precision_at_r": "P@R",
    "map_at_r": "MAP@R",
}
PARTS = {
    "single": "{}-D",
    "average": "{}-D, mean of models",
    "concatenated": "{}-D, concatenated",
}


@dataclass(frozen=True)
class TablesCommand:
    """Prints the cells of a study in the papers' layout."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of a study, or of one of its cells."""
    published: Path | None = None
    """CSV file of the numbers a paper prints, to stand beside ours; columns
    dataset, loss, method, part (single, average, concatenated), measure
    (precision_at_1, precision_at_r, map_at_r) and percent."""


def study_table(folder, published=None) -> str:
    """Markdown table of the finished cells of a study, percentages.

    A row for each loss and method; the measures for single models and for
    four together; beside each number the published one, where it is known.

    Args:
        folder: A study's folder, or one cell's.
        published: CSV file of published results; see
            `read_published_results`.

    Returns:
        The table, one for each protocol, with a line on how weights were
        chosen.

    Raises:
        FileNotFoundError: no finished cell, or no such file.
        ValueError: a file of published results that cannot be meant.
    """
    known = {}
    if published is not None:
        known = read_published_results(
            published, parts=PARTS, measures=MEASURES
        )
    folder = Path(folder)
    cells = [folder, *folder.iterdir()] if folder.is_dir() else []
    found = {}
    for directory in sorted(map(RunDirectory, cells), key=_place):
        if directory.is_finished:
            scores = directory.read_scores()
            if "protocol" in scores:
                found.setdefault(scores["protocol"], []).append(
                    (directory, scores)
                )
    if not found:
        raise FileNotFoundError(
            "`folder` must hold a finished run of a protocol. Received: "
            f"{folder}. Train one with `python -m training.study`."
        )
    tables = [_table(rows, known) for rows in found.values()]
    return "\n\n".join(tables)


def _place(directory):
    """Pair losses before proxy losses, average pooling first."""
    loss, _, method = directory.path.name.partition(".")
    losses = (*PAIR_LOSSES, *PROXY_LOSSES)
    return _index(losses, loss), _index(tuple(METHODS), method), loss, method


def _index(words, word):
    return words.index(word) if word in words else len(words)


def _table(rows, known):
    first = rows[0][1]
    parts = [part for part in PARTS if part in first]
    heads = [
        f"{measure} ({PARTS[part].format(first[part]['embedding_size'])})"
        for part in parts
        for measure in MEASURES.values()
    ]
    lines = [
        _line(["loss", "method", *heads, "models", "time"]),
        _line(["---"] * 2 + ["---:"] * (len(heads) + 2)),
    ]
    lines += [_row(*row, parts, known) for row in rows]
    return "\n".join([*lines, "", _note(rows)])


def _row(directory, scores, parts, known):
    recipe = directory.read_recipe()
    loss, method = _words(directory, recipe)
    published = known.get((recipe.dataset, loss, method), {})
    cells = [
        _cell(scores[part][name], published.get(part, {}).get(name))
        for part in parts
        for name in MEASURES
    ]
    minutes = f"{scores['seconds'] / 60:.1f} min"
    return _line([loss, method, *cells, str(scores["num_models"]), minutes])


def _words(directory, recipe):
    loss, _, method = directory.path.name.partition(".")
    if not method:
        return recipe.loss, directory.path.name
    return loss, method


def _cell(measured, published):
    text = spread(measured, factor=100, digits=2)
    return text if published is None else f"{text} (paper {published:.2f})"


def _note(rows):
    directory, scores = rows[0]
    name = directory.read_recipe().dataset
    if "." in directory.path.name:
        name = directory.path.parent.name
    note = (
        f"{name}, {scores['protocol']} protocol: weights chosen on "
        f"{scores['selected_on']}; percentages, mean ± standard deviation"
    )
    if scores.get("num_collections", 1) > 1:
        note += f" over {scores['num_collections']} collections of 4 models"
    return note + "."


def _line(cells):
    return "| " + " | ".join(cells) + " |"


def main(arguments=None):
    """Runs the command line."""
    command = tyro.cli(
        TablesCommand,
        prog="python -m training.tables",
        description=__doc__,
        args=arguments,
    )
    try:
        print(study_table(command.folder, command.published))
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
