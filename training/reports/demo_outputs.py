"""The demo's export, its search in a new process, and its three pictures."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits
from training.pictures.palette import (
    METHODS,
    QUERY,
    RIGHT,
    WEIGHTS_ALPHA,
    WRONG,
    picture,
)
from training.pictures.pooling_weights import pooling_weights
from training.runs.export_run import Export, export_run
from training.runs.run_directory import RunDirectory
from training.runs.scoring import embed, load_encoder

CHECKOUT = Path(__file__).parents[2]
NUM_QUERIES = 3
NUM_SHOWN = 5
"""Neighbors that the search prints."""
NUM_IMAGES = 8
"""Images in a picture, and neighbors beside each."""


def export_and_search(
    directory: RunDirectory, splits: RetrievalSplits, folder: Path
) -> None:
    """Exports a run and searches the export from a new process.

    The gallery holds all images of unseen letters, so each query finds itself
    first.

    Args:
        directory: the run to export.
        splits: the `glyphs` splits.
        folder: gets `saved_model`, which is kept if it exists, and `queries`.
    """
    model = folder.absolute() / "saved_model"
    if not model.exists():
        export_run(Export(run=directory.path, output=model))
    queries = _write_queries(splits.test, folder.absolute() / "queries")
    print(f"{directory.path} exported to {folder / 'saved_model'}. A new")
    print("process loads it and finds (distance, class, image):", flush=True)
    arguments = [str(model), *queries, "--top", str(NUM_SHOWN)]
    subprocess.run(
        [sys.executable, "-m", "training.search", *arguments],
        cwd=CHECKOUT,
        check=True,
    )


def draw_pictures(
    directories: dict[tuple[str, str, int], RunDirectory],
    best: RunDirectory,
    splits: RetrievalSplits,
    folder: Path,
) -> None:
    """Draws learning curves, pooling weights and neighbors.

    Args:
        directories: (stage, method, seed) -> finished run.
        best: run whose weights and neighbors are drawn.
        splits: the `glyphs` splits; images are those of unseen letters.
        folder: folder of the PNG files.
    """
    histories: dict[str, list] = {}
    for (stage, method, _), directory in directories.items():
        label = method if stage == "frozen" else f"{method}, {stage}"
        histories.setdefault(label, []).append(directory.read_history())
    draw_learning_curves(folder / "learning_curves.png", histories)
    encoder = load_encoder(best)
    chosen = _first_of_classes(splits.test)[:NUM_IMAGES]
    images = splits.test.images[chosen]
    # The name of a class begins with its letter.
    letters = [
        splits.test.class_names[splits.test.labels[i]][0] for i in chosen
    ]
    draw_pooling_weights(
        folder / "pooling_weights.png",
        images,
        pooling_weights(encoder, images),
        letters,
    )
    recipe = best.read_recipe()
    embeddings = embed(encoder, recipe, splits.test)
    neighbors, is_right = _neighbors(embeddings, splits.test, chosen)
    draw_retrieval_grid(
        folder / "retrieval_grid.png", images, neighbors, is_right
    )


def draw_learning_curves(path: Path, histories: dict[str, list]) -> None:
    """Draws mean and range over seeds of `val_map_at_r`.

    Args:
        path: PNG file to write.
        histories: method -> one history for each seed, as
            `RunDirectory.read_history` returns it.
    """
    with picture(path, figsize=(11, 5)) as axes:
        axis = axes[0, 0]
        for method, runs in histories.items():
            # Runs may have stopped early, at different steps.
            length = min(len(run) for run in runs)
            steps = [line["step"] for line in runs[0][:length]]
            scores = np.array(
                [
                    [line["val_map_at_r"] for line in run[:length]]
                    for run in runs
                ]
            )
            name, _, stage = method.partition(", ")
            color = METHODS[name]
            axis.plot(
                steps,
                scores.mean(axis=0),
                "o:" if stage else "o-",
                color=color,
                label=method,
            )
            low, high = scores.min(axis=0), scores.max(axis=0)
            axis.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
        axis.set(xlabel="training step", ylabel="MAP@R on validation letters")
        axis.set_ylim(bottom=0)
        seeds = max(len(runs) for runs in histories.values())
        axis.legend(
            title=f"solid: mean and range of {seeds}" if seeds > 1 else None,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
        )


def draw_pooling_weights(
    path: Path, images: np.ndarray, weights: np.ndarray, titles: list[str]
) -> None:
    """Draws images above the same images under their pooling weights.

    Args:
        path: PNG file to write.
        images: `(images, height, width, 3)`, uint8.
        weights: `(images, rows, columns)`; each map sums to 1.
        titles: one for each image.
    """
    # Multiples of the weight that average pooling gives to every place.
    relative = weights * weights[0].size
    size = (1.35 * len(images) + 1.2, 3.4)
    with picture(path, 2, len(images), figsize=size) as axes:
        for (upper, lower), image, weight, title in zip(
            axes.T, images, relative, titles, strict=True
        ):
            upper.set_title(title)
            upper.imshow(image)
            shown = lower.imshow(
                weight,
                cmap="viridis",
                alpha=WEIGHTS_ALPHA,
                vmin=0,
                vmax=relative.max(),
                extent=lower.imshow(image).get_extent(),
                interpolation="nearest",
            )
            for axis in (upper, lower):
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
        axes[0, 0].set_ylabel("image")
        axes[1, 0].set_ylabel("weights")
        axes[0, 0].figure.colorbar(
            shown, ax=list(axes[:, -1]), label="weight / average", shrink=0.9
        )


def draw_retrieval_grid(
    path: Path, queries: np.ndarray, neighbors: np.ndarray, is_right: np.ndarray
) -> None:
    """Draws a row for each query: the query, then its neighbors.

    Args:
        path: PNG file to write.
        queries: `(queries, height, width, 3)`, uint8.
        neighbors: `(queries, k, height, width, 3)`, uint8, nearest first.
        is_right: `(queries, k)`, whether the class is that of the query.
    """
    rows, columns = is_right.shape
    size = (1.1 * (columns + 1), 1.12 * rows + 0.8)
    with picture(path, rows, columns + 1, figsize=size) as axes:
        for row, cells in enumerate(axes):
            _framed(cells[0], queries[row], QUERY, "-")
            for rank, right in enumerate(is_right[row]):
                color = RIGHT if right else WRONG
                style = "-" if right else (0, (2, 1.2))
                _framed(cells[rank + 1], neighbors[row, rank], color, style)
        axes[0, 0].set_title("query")
        for rank, axis in enumerate(axes[0, 1:]):
            axis.set_title(f"{rank + 1}")
        axes[0, 0].figure.supxlabel(
            "neighbors, nearest first; solid blue: same letter, dashed "
            f"red-orange: another one ({is_right.mean():.0%} right)",
            fontsize=11,
        )


def _framed(axis, image, color, style):
    axis.imshow(image)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(visible=True, color=color, linewidth=4, linestyle=style)


def _neighbors(embeddings, images: ImageSet, chosen):
    import keras_gsp as gsp

    index = gsp.retrieval.ExactIndex(embeddings, images.labels)
    found = index.search(embeddings[chosen], NUM_IMAGES, exclude_ids=chosen)
    is_right = found.labels == images.labels[chosen, None]
    return images.images[found.ids], is_right


def _first_of_classes(images: ImageSet) -> np.ndarray:
    """Returns the position of the first image of each class."""
    return np.unique(images.labels, return_index=True)[1]


def _write_queries(images, folder):
    """Writes one image of each of the last classes as PNG."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for position in _first_of_classes(images)[-NUM_QUERIES:]:
        file = folder / f"test-{position}.png"
        Image.fromarray(images.images[position]).save(file)
        files.append(str(file))
    return files
