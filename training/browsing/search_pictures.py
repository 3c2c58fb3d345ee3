"""Draw search results: neighbors, pooling weights, prototype contributions."""

from pathlib import Path

import numpy as np

from training.browsing.export_search import ExportSearch
from training.pictures.encoding import decoded_image
from training.pictures.palette import (
    BLACK,
    BLUE,
    VERMILION,
    WEIGHTS_ALPHA,
    picture,
)

NUM_PROTOTYPES = 4
NUM_BARS = 12


def draw_search_results(
    path: Path,
    search: ExportSearch,
    queries: list[bytes],
    answer: dict[str, np.ndarray],
    top: int,
    weights: bool = False,
) -> None:
    """Draws a row for each query, an encoded image, and `top` neighbors.

    `answer` is that of the export's search signature. With `weights`, a second
    row has the pooling weights of each image.
    """
    columns = min(top, int(answer["counts"].max())) + 1
    rows = 1 + weights
    size = (1.5 * columns, (1.5 * rows + 0.4) * len(queries) + 0.3)
    with picture(path, rows * len(queries), columns, figsize=size) as axes:
        for axis in axes.flat:
            axis.axis("off")
        for row, query in enumerate(queries):
            upper = axes[rows * row]
            is_read = answer["status"][row] == b"ok"
            _show(upper[0], query, "query" if is_read else "unread")
            upper[0].axis("on")
            upper[0].set(xticks=[], yticks=[])
            for spine in upper[0].spines.values():
                spine.set(visible=True, color=BLACK, linewidth=3)
            for rank in range(min(columns - 1, int(answer["counts"][row]))):
                label = answer["labels"][row][rank].decode()
                distance = answer["distances"][row][rank]
                found = search.image(answer["ids"][row][rank].decode())
                _show(upper[rank + 1], found, f"{label[:12]}\n{distance:.3f}")
                if not weights or not is_read or found is None:
                    continue
                lower = axes[rows * row + 1]
                shares = search.explain(query, [found])
                for axis, contents, side in (
                    (lower[0], query, "query"),
                    (lower[rank + 1], found, "neighbor"),
                ):
                    map_ = shares[f"{side}_weights"][0]
                    _overlay(axis, contents, search.crop_fraction, map_)


def draw_explanation(
    path: Path,
    search: ExportSearch,
    query: bytes,
    answer: dict[str, np.ndarray],
) -> None:
    """Draws why the nearest neighbor that is not the query itself is near.

    A row each for query and neighbor: the image, its pooling weights, and the
    parts of them that belong to the prototypes that contribute most. Bars are
    the contribution of each prototype to the similarity.
    """
    neighbor, name = _first_other(search, query, answer)
    shares = search.explain(query, [neighbor])
    contributions = shares["contributions"][0]
    strongest = np.argsort(-np.abs(contributions))
    columns = 3 + len(strongest[:NUM_PROTOTYPES])
    with picture(path, 2, columns, figsize=(2.1 * columns, 4.8)) as axes:
        sides = (("query", query, "query"), ("neighbor", neighbor, name))
        for row, (side, contents, title) in zip(axes, sides, strict=True):
            maps = shares[f"{side}_maps"][0]
            parts = [
                (title, None),
                ("weights", shares[f"{side}_weights"][0]),
                *((f"prototype {i}", maps[..., i]) for i in strongest),
            ]
            for axis, (words, part) in zip(row[:-1], parts, strict=False):
                _overlay(axis, contents, search.crop_fraction, part, words)
        similarity = float(shares["similarity"][0])
        _bars(axes[:, -1], contributions, strongest[:NUM_BARS], similarity)


def _first_other(search, query, answer):
    for rank in range(int(answer["counts"][0])):
        id_ = answer["ids"][0][rank].decode()
        contents = search.image(id_)
        # Compared by pixels: one image in two files has different bytes.
        if contents is not None and not np.array_equal(
            decoded_image(contents), decoded_image(query)
        ):
            return contents, answer["labels"][0][rank].decode() or id_
    raise ValueError(
        "The gallery's images must be in `data_dir`: name their folder or "
        f"archive with --data-dir. Received: {search.folder}, none of whose "
        "neighbors can be opened."
    )


def _show(axis, contents, title):
    axis.imshow(decoded_image(contents))
    axis.set_title(title, fontsize=10)


def _overlay(axis, contents, crop, weights, title=""):
    """Draws the embedded part of an image under a map of weights."""
    shown = axis.imshow(decoded_image(contents, crop))
    if weights is not None:
        axis.imshow(
            weights,
            cmap="viridis",
            alpha=WEIGHTS_ALPHA,
            extent=shown.get_extent(),
            interpolation="nearest",
        )
    axis.set_title(title[:14], fontsize=11)
    axis.set(xticks=[], yticks=[])


def _bars(cells, contributions, chosen, similarity):
    """Replaces two cells with one chart of signed contributions."""
    grid, figure = cells[0].get_gridspec(), cells[0].figure
    for cell in cells:
        cell.remove()
    axis = figure.add_subplot(grid[:, -1])
    values = contributions[chosen][::-1]
    colors = np.where(values >= 0, BLUE, VERMILION)
    axis.barh(np.arange(len(values)), values, color=colors)
    axis.set_yticks(np.arange(len(values)), chosen[::-1])
    axis.axvline(0.0, color="black", linewidth=1)
    axis.set_title(f"similarity {similarity:.3f}", fontsize=11)
    axis.set(xlabel="contribution", ylabel="prototype")
