"""The demo's SavedModel, and a search with it in a process of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.export import ExportCommand, export_run
from training.runs.run_directory import RunDirectory

CHECKOUT = Path(__file__).parents[2]
NUM_QUERIES = 3
NUM_NEIGHBORS = 5


def export_and_search(
    directory: RunDirectory, splits: RetrievalSplits, folder: Path
) -> None:
    """Exports a run with an exact index and asks it for neighbors.

    The gallery are all images of unseen letters, so each query finds itself
    first, and then, one hopes, its own letter.

    Args:
        directory: `RunDirectory` of the run to export.
        splits: The `glyphs` splits.
        folder: Gets `saved_model` and the queries; a model that is there
            already is kept.
    """
    model = folder.absolute() / "saved_model"
    if not model.exists():
        export_run(ExportCommand(run=directory.path, output=model))
    queries = _write_queries(splits.test, folder.absolute() / "queries")
    print(f"{directory.path} exported to {folder / 'saved_model'}; a fresh")
    print("process loads it and finds (distance, class, image):", flush=True)
    arguments = [str(model), *queries, "--top", str(NUM_NEIGHBORS)]
    subprocess.run(
        [sys.executable, "-m", "training.search", *arguments],
        cwd=CHECKOUT,
        check=True,
    )


def _write_queries(images, folder):
    """PNG files of one image of each of the last classes."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    _, first = np.unique(images.labels, return_index=True)
    files = []
    for index in first[-NUM_QUERIES:]:
        file = folder / f"test-{index}.png"
        Image.fromarray(images.images[index]).save(file)
        files.append(str(file))
    return files
