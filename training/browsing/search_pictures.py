"""Draw search results: neighbors, pooling weights, prototype contributions."""

import textwrap
import unicodedata
from pathlib import Path

import numpy as np

from training.browsing.export_search import ExportSearch
from training.browsing.exports import as_text
from training.pictures.encoding import decoded_image
from training.pictures.framed_image import GRAY, draw_image, outline
from training.pictures.palette import BLACK, BLUE, VERMILION, picture

NUM_PROTOTYPES = 4
TILE = 1.5  # side of an image, inches


def draw_search_results(
    path: Path,
    search: ExportSearch,
    queries: list[bytes],
    answer: dict[str, np.ndarray],
    top: int,
    weights: bool = False,
    label: str | None = None,
) -> None:
    """Draws a row for each query, an encoded image, and `top` neighbors.

    `answer` is that of the export's search signature. The frame of a neighbor
    is solid and blue for a match, dashed and orange for others: by `label`,
    the queries' class, else by the export's threshold, else gray. The box of a
    `TwoLooks` is outlined. With `weights`, a second row has the images under a
    veil that lets through what is pooled.
    """
    shown = min(top, int(answer["counts"].max()))
    rows = 1 + weights
    # The first column, apart from the others, is the query.
    widths = [1.0, 0.25, *[1.0] * shown]
    with picture(
        *(path, rows * len(queries), len(widths)),
        figsize=(TILE * sum(widths), (TILE * rows + 0.75) * len(queries)),
        gridspec_kw={"width_ratios": widths},
    ) as axes:
        for axis in axes.flat:
            axis.axis("off")
        for row, query in enumerate(queries):
            upper, lower = axes[rows * row], axes[rows * (row + 1) - 1]
            is_read = answer["status"][row] == b"ok"
            title = "query" if is_read else "unreadable"
            if is_read and label is not None:
                title = f"query: {_short(label)}"
            draw_image(upper[0], query, None, title, BLACK, 3)
            if is_read:
                outline(upper[0], search.box(query))
            for rank in range(min(shown, int(answer["counts"][row]))):
                name, is_match = _fact(answer, row, rank, label)
                found = search.image(as_text(answer["ids"][row][rank]))
                color = {None: GRAY, True: BLUE, False: VERMILION}[is_match]
                distance = answer["distances"][row][rank]
                words = f"{_short(name)}\n{distance:.3f}"
                style = "--" if is_match is False else "-"
                draw_image(upper[rank + 2], found, None, words, color, 3, style)
                if found is not None:
                    outline(upper[rank + 2], search.box(found))
                if not weights or not is_read or found is None:
                    continue
                shares = search.explain(query, [found])
                for axis, contents, side in (
                    (lower[0], query, "query"),
                    (lower[rank + 2], found, "neighbor"),
                ):
                    pixels = decoded_image(contents, search.crop_fraction)
                    draw_image(axis, pixels, shares[f"{side}_weights"][0])


def _fact(answer, row, rank, label):
    """Class of a neighbor, and whether it is a match or None if unknown."""
    name = as_text(answer["labels"][row][rank])
    if label is not None:
        return name, name == label
    known = answer.get("is_match")
    return name, None if known is None else bool(known[row][rank])


def _short(name):
    """The letter alone where a class is a letter and its Unicode name."""
    letter, _, rest = name.partition(" ")
    is_letter = len(letter) == 1 and unicodedata.name(letter, "") == rest
    if is_letter:
        return letter
    # Lines may also end at an underscore, as names of folders have them.
    return textwrap.fill(name.replace("_", "_ "), 16).replace("_ ", "_")


def draw_explanation(
    path: Path,
    search: ExportSearch,
    query: bytes,
    answer: dict[str, np.ndarray],
) -> None:
    """Draws why the nearest neighbor that is not the query itself is near.

    A row each for query and neighbor: the image, what of it is pooled, and the
    parts of that which belong to the prototypes that contribute most, each with
    its share of the similarity.
    """
    neighbor, name = _first_other(search, query, answer)
    shares = search.explain(query, [neighbor])
    contributions = shares["contributions"][0]
    strongest = np.argsort(-np.abs(contributions))[:NUM_PROTOTYPES]
    titles = [f"similarity {shares['similarity'][0]:.3f}"]
    titles += [f"prototype {i}\nadds {contributions[i]:.3f}" for i in strongest]
    columns = 1 + len(titles)
    with picture(path, 2, columns, figsize=(2.1 * columns, 4.8)) as axes:
        for row, side, contents, title in (
            (axes[0], "query", query, "query"),
            (axes[1], "neighbor", neighbor, _short(name)),
        ):
            pixels = decoded_image(contents, search.crop_fraction)
            draw_image(row[0], pixels, None, title)
            maps = shares[f"{side}_maps"][0]
            parts = [shares[f"{side}_weights"][0]]
            parts += [maps[..., i] for i in strongest]
            for axis, words, part in zip(row[1:], titles, parts, strict=True):
                draw_image(axis, pixels, part, words)


def _first_other(search, query, answer):
    for rank in range(int(answer["counts"][0])):
        id_ = as_text(answer["ids"][0][rank])
        contents = search.image(id_)
        # Compared by pixels: one image in two files has different bytes.
        if contents is not None and not np.array_equal(
            decoded_image(contents), decoded_image(query)
        ):
            return contents, _fact(answer, 0, rank, None)[0] or id_
    raise ValueError(
        "The gallery's images must be in `data_dir`: name their folder or "
        f"archive with --data-dir. Received: {search.folder}, none of whose "
        "neighbors can be opened."
    )
