"""Queries and their neighbours, with label and distance."""

from pathlib import Path

from training.pictures.gallery_images import gallery_bytes, pixels
from training.pictures.palette import BLACK, QUERY, picture


def draw_search_results(
    path: Path, queries: list[bytes], answer: dict, folder: Path, top: int
) -> None:
    """Draws a row for each query: the query, then its neighbours.

    Args:
        path: PNG file to write.
        queries: Encoded images.
        answer: What the export's search signature returned.
        folder: The export.
        top: Neighbours to draw.
    """
    columns = min(top, int(answer["counts"].max())) + 1
    size = (1.5 * columns, 1.9 * len(queries) + 0.3)
    with picture(path, len(queries), columns, figsize=size) as axes:
        for row, query in enumerate(queries):
            for axis in axes[row]:
                axis.axis("off")
            status = answer["status"][row].decode()
            _show(axes[row, 0], query, "query" if status == "ok" else "unread")
            _frame(axes[row, 0], QUERY)
            for rank in range(min(columns - 1, int(answer["counts"][row]))):
                id_ = answer["ids"][row][rank].decode()
                label = answer["labels"][row][rank].decode()
                distance = answer["distances"][row][rank]
                found = gallery_bytes(folder, id_)
                axis = axes[row, rank + 1]
                _show(axis, found, f"{label[:12]}\n{distance:.3f}")


def _show(axis, contents, title):
    axis.imshow(pixels(contents))
    axis.set_title(title, fontsize=10, color=BLACK)


def _frame(axis, color):
    axis.axis("on")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(visible=True, color=color, linewidth=3)
