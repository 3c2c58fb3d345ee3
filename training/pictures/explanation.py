"""Why a neighbor is near: weights, prototypes and their contributions."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.gallery_images import gallery_bytes, pixels
from training.pictures.palette import BLUE, VERMILION, picture

NUM_PROTOTYPES = 4
ALPHA = 0.65


def draw_explanation(
    path: Path, explain: Any, query: bytes, answer: dict, folder: Path
) -> None:
    """Draws a query and its nearest neighbor that is not the same image.

    Above the query, below the neighbor: the image, the pooling weights, and
    the parts of the weights that belong to the prototypes which contribute
    most. Right, what each prototype adds to the similarity.

    Args:
        path: PNG file to write.
        explain: The export's signature of that name.
        query: Encoded image.
        answer: What the export's search signature returned; its first row is
            the query's.
        folder: The export.

    Raises:
        ValueError: the neighbors' images are not there any more.
    """
    import tensorflow as tf

    neighbor, name = _first_other(query, answer, folder)
    shares = explain(
        query_bytes=tf.constant(query), neighbor_bytes=tf.constant(neighbor)
    )
    shares = {key: value.numpy() for key, value in shares.items()}
    contributions = shares["contributions"]
    facts = json.loads((folder / "metadata.json").read_text())
    kept = facts["crop_fraction"]
    strongest = np.argsort(-np.abs(contributions))[:NUM_PROTOTYPES]
    columns = 3 + len(strongest)
    with picture(path, 2, columns, figsize=(2.1 * columns, 4.8)) as axes:
        rows = [("query", query), ("neighbor", neighbor)]
        for row, (side, contents) in zip(axes, rows, strict=True):
            image = pixels(contents)
            draw_overlay(
                row[0],
                image,
                kept,
                None,
                name if row[0] is axes[1, 0] else side,
            )
            draw_overlay(
                row[1], image, kept, shares[f"{side}_weights"], "weights"
            )
            for axis, prototype in zip(row[2:], strongest, strict=False):
                part = shares[f"{side}_maps"][..., prototype]
                draw_overlay(axis, image, kept, part, f"prototype {prototype}")
        _bars(axes[:, -1], contributions, float(shares["similarity"]))


def _first_other(query, answer, folder):
    for rank in range(int(answer["counts"][0])):
        id_ = answer["ids"][0][rank].decode()
        contents = gallery_bytes(folder, id_)
        if contents is None:
            continue
        # One image in two files has the same pixels, not the same bytes.
        if not np.array_equal(pixels(contents), pixels(query)):
            return contents, answer["labels"][0][rank].decode() or id_
    raise ValueError(
        "The gallery's images must still be where they were. "
        f"Received: {folder}, none of whose neighbors can be opened."
    )


def draw_overlay(
    axis: Any, image: Any, kept: float, weights: Any, title: str = ""
) -> None:
    """Draws an image under a map of its centered square, as it was embedded.

    Args:
        axis: Where to draw.
        image: (height, width, 3), uint8.
        kept: Side of that square, as a share of the shorter side.
        weights: (rows, columns), or None for the image alone.
        title: What stands above it.
    """
    height, width = image.shape[:2]
    if kept is not None:
        height = width = max(1, round(min(height, width) * kept))
    top = (image.shape[0] - height) // 2
    left = (image.shape[1] - width) // 2
    axis.imshow(image[top : top + height, left : left + width])
    if weights is not None:
        axis.imshow(
            weights,
            cmap="viridis",
            alpha=ALPHA,
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            interpolation="nearest",
        )
    axis.set_title(title[:14], fontsize=11)
    axis.set_xticks([])
    axis.set_yticks([])


def _bars(cells, contributions, similarity):
    """Joins two cells into one chart of signed contributions."""
    upper, lower = cells
    grid = upper.get_gridspec()
    figure = upper.figure
    for cell in cells:
        cell.remove()
    axis = figure.add_subplot(grid[:, -1])
    order = np.argsort(-np.abs(contributions))[:12][::-1]
    values = contributions[order]
    axis.barh(
        np.arange(len(order)),
        values,
        color=np.where(values >= 0, BLUE, VERMILION),
    )
    axis.set_yticks(np.arange(len(order)), order)
    axis.axvline(0.0, color="black", linewidth=1)
    axis.set_title(f"similarity {similarity:.3f}", fontsize=11)
    axis.set_xlabel("contribution")
    axis.set_ylabel("prototype")
