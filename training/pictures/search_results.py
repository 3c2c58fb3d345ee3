"""Queries and their neighbors, with label, distance and pooling weights."""

import json
from collections.abc import Callable
from pathlib import Path

from training.pictures.explanation import draw_overlay
from training.pictures.gallery_images import gallery_bytes, pixels
from training.pictures.palette import BLACK, QUERY, picture


def draw_search_results(
    path: Path,
    queries: list[bytes],
    answer: dict,
    folder: Path,
    top: int,
    explain: Callable | None = None,
) -> None:
    """Draws a row for each query: the query, then its neighbors.

    Args:
        path: PNG file to write.
        queries: Encoded images.
        answer: What the export's search signature returned.
        folder: The export.
        top: Neighbors to draw.
        explain: The export's signature of that name: a second row shows how
            much each place of an image counts.
    """
    columns = min(top, int(answer["counts"].max())) + 1
    rows = 1 if explain is None else 2
    size = (1.5 * columns, (1.5 * rows + 0.4) * len(queries) + 0.3)
    with picture(path, rows * len(queries), columns, figsize=size) as axes:
        for axis in axes.flat:
            axis.axis("off")
        for row, query in enumerate(queries):
            upper = axes[rows * row]
            status = answer["status"][row].decode()
            _show(upper[0], query, "query" if status == "ok" else "unread")
            _frame(upper[0], QUERY)
            found = []
            for rank in range(min(columns - 1, int(answer["counts"][row]))):
                id_ = answer["ids"][row][rank].decode()
                label = answer["labels"][row][rank].decode()
                distance = answer["distances"][row][rank]
                found.append(gallery_bytes(folder, id_))
                title = f"{label[:12]}\n{distance:.3f}"
                _show(upper[rank + 1], found[-1], title)
            if explain is not None and status == "ok":
                lower = axes[rows * row + 1]
                _draw_weights(lower, explain, query, found, folder)


def _draw_weights(axes, explain, query, found, folder):
    import tensorflow as tf

    kept = json.loads((folder / "metadata.json").read_text())["crop_fraction"]
    for axis, contents in zip(axes[1:], found, strict=False):
        if contents is None:
            continue
        shares = explain(
            query_bytes=tf.constant(query),
            neighbor_bytes=tf.constant(contents),
        )
        sides = (axes[0], query, "query"), (axis, contents, "neighbor")
        for side, image, name in sides:
            weights = shares[f"{name}_weights"].numpy()
            draw_overlay(side, pixels(image), kept, weights)


def _show(axis, contents, title):
    axis.imshow(pixels(contents))
    axis.set_title(title, fontsize=10, color=BLACK)


def _frame(axis, color):
    axis.axis("on")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(visible=True, color=color, linewidth=3)
