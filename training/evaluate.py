"""Scores a run's encoder: `python -m training.evaluate runs/NAME`."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.recipes.recipe import Dataset, Recipe
from training.runs.run_directory import RunDirectory, write_json


@dataclass(frozen=True)
class EvaluateCommand:
    """Scores the encoder of a run on any data set."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, for example `runs/glyphs-gsp,seed=1`."""
    dataset: Dataset | None = None
    """Data set to score; by default the one of the run."""
    data_dir: str | None = None
    """Where that data set is; by default where the run had it."""
    split: Literal["test", "validation", "train"] = "test"
    """Side of the data set."""
    output: Path | None = None
    """JSON file for the scores, which must be new; else they are printed
    only."""


def score(encoder, recipe: Recipe, images, query=None, gallery=None) -> dict:
    """Embeds images and scores their retrieval.

    Args:
        encoder: Keras model to embeddings, or to a dict with `"embedding"`.
        recipe: Says how images are cut.
        images: `ImageSet` that searches itself, unless the two others are
            given.
        query: `ImageSet` of queries.
        gallery: `ImageSet` that they search.

    Returns:
        The dict of `gsp.metrics.retrieval_scores`, in Python numbers.
    """
    import keras_gsp as gsp

    searching = images if query is None else query
    embeddings = embed(encoder, recipe, searching)
    references = {}
    if gallery is not None:
        references = {
            "gallery_embeddings": embed(encoder, recipe, gallery),
            "gallery_labels": gallery.labels,
        }
    scores = gsp.metrics.retrieval_scores(
        embeddings, searching.labels, **references
    )
    return {
        name: int(value) if name.startswith("num_") else float(value)
        for name, value in scores.items()
    }


def embed(encoder, recipe: Recipe, images):
    """Embeddings of an `ImageSet`, (num_images, embedding_size), float32."""
    import numpy as np

    import keras_gsp as gsp
    from training.recipes.batches import evaluation_batches

    found = []
    for pixels, _ in evaluation_batches(recipe, images):
        outputs = encoder.predict_on_batch(pixels)
        found.append(gsp.models.embedding_of(outputs))
    return np.concatenate(found)


def load_encoder(directory: RunDirectory):
    """The trained encoder of a run.

    Raises:
        FileNotFoundError: the run has none yet.
    """
    if not directory.encoder.exists():
        raise FileNotFoundError(
            f"{directory.path} must hold {directory.encoder.name}. Received "
            "a run that is not finished; the command that began it goes on "
            "with it."
        )
    import keras

    import keras_gsp  # noqa: F401, registers the layers

    return keras.models.load_model(directory.encoder, compile=False)


def main(arguments=None):
    """Runs the command line."""
    command = tyro.cli(
        EvaluateCommand,
        prog="python -m training.evaluate",
        description=__doc__,
        args=arguments,
    )
    try:
        scores = _evaluate(command)
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        sys.exit(f"error: {error}")
    for measure, value in scores.items():
        print(f"{measure:>16}  {value:.4f}")


def _evaluate(command):
    directory = RunDirectory(command.run)
    # A complete encoder was saved, whatever was cached to train it.
    recipe = replace(directory.read_recipe(), cache_features=False)
    if command.output is not None and command.output.exists():
        raise FileExistsError(
            f"`output` must be new. Received: {command.output}."
        )
    if command.dataset is not None:
        recipe = replace(recipe, dataset=command.dataset)
    if command.data_dir is not None:
        recipe = replace(recipe, data_dir=command.data_dir)
    encoder = load_encoder(directory)
    from training.recipes.data import load_splits

    splits = load_splits(recipe)
    sides = {}
    if command.split == "test":
        sides = {"query": splits.query, "gallery": splits.gallery}
    scores = score(encoder, recipe, getattr(splits, command.split), **sides)
    if command.output is not None:
        write_json(command.output, scores)
    return scores


if __name__ == "__main__":
    main()
