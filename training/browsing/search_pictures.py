"""Draw search results: queries and their neighbors."""

import textwrap
import unicodedata
from pathlib import Path

import numpy as np

from training.browsing.exports import ExportSearch, as_text
from training.pictures.framed_image import GRAY, draw_image
from training.pictures.palette import BLACK, BLUE, VERMILION, picture

TILE = 1.5  # side of an image, inches


def draw_search_results(
    path: Path,
    search: ExportSearch,
    queries: list[bytes],
    answer: dict[str, np.ndarray],
    top: int,
) -> None:
    """Draws a row for each query, an encoded image, and `top` neighbors.

    `answer` is that of the export's search signature. The frame of a neighbor
    is solid and blue for a match, dashed and orange for others, gray without
    a threshold.
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
                name = as_text(answer["labels"][row][rank])
                is_match = None
                if "is_match" in answer:
                    is_match = bool(answer["is_match"][row][rank])
                found = search.image(as_text(answer["ids"][row][rank]))
                color = {None: GRAY, True: BLUE, False: VERMILION}[is_match]
                distance = answer["distances"][row][rank]
                words = f"{_short(name)}\n{distance:.3f}"
                style = "--" if is_match is False else "-"
                draw_image(
                    axes[row][rank + 2], found, None, words, color, 3, style
                )


def _short(name):
    """The letter alone where a class is a letter and its Unicode name."""
    letter, _, rest = name.partition(" ")
    is_letter = len(letter) == 1 and unicodedata.name(letter, "") == rest
    if is_letter:
        return letter
    # Lines may also end at an underscore, as names of folders have them.
    return textwrap.fill(name.replace("_", "_ "), 16).replace("_ ", "_")
