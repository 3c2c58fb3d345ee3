"""Queries and what was found for them, framed right or wrong."""

from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.palette import QUERY, RIGHT, WRONG, picture


def draw_retrieval_grid(
    path: Path, queries: Any, neighbors: Any, is_right: Any
) -> None:
    """Draws a row per query: the query, then its neighbors, nearest first.

    Args:
        path: PNG file to write.
        queries: (num_queries, height, width, 3), uint8.
        neighbors: (num_queries, num_neighbors, height, width, 3), uint8.
        is_right: (num_queries, num_neighbors), whether the class is that of
            the query.
    """
    rows, columns = np.shape(is_right)
    size = (1.1 * (columns + 1), 1.12 * rows + 0.8)
    with picture(path, rows, columns + 1, figsize=size) as axes:
        for row in range(rows):
            _framed(axes[row, 0], queries[row], QUERY, "-")
            for column in range(columns):
                right = is_right[row][column]
                _framed(
                    axes[row, column + 1],
                    neighbors[row][column],
                    RIGHT if right else WRONG,
                    "-" if right else (0, (2, 1.2)),
                )
        axes[0, 0].set_title("query")
        for column in range(columns):
            axes[0, column + 1].set_title(f"{column + 1}")
        share = float(np.mean(is_right))
        axes[0, 0].figure.supxlabel(
            "neighbors, nearest first; solid blue: same letter, dashed "
            f"red-orange: another one ({share:.0%} right)",
            fontsize=11,
        )


def _framed(axis, image, color, style):
    axis.imshow(image)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(visible=True, color=color, linewidth=4, linestyle=style)
