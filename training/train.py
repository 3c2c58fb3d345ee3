"""Trains a recipe: `python -m training.train glyphs-gsp --seed 1`."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.recipes.choice import choose_recipe
from training.recipes.named import run_name
from training.recipes.recipe import Recipe
from training.runs.environment import environment
from training.runs.run_directory import RunDirectory, write_json

ERRORS = (ValueError, TypeError, FileNotFoundError, FileExistsError)


@dataclass(frozen=True)
class TrainCommand:
    """Trains a recipe and scores it on unseen classes."""

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    recipe_name: tyro.conf.Suppress[str]
    name: str | None = None
    """Name of the run; by default the recipe's with what was changed."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def train_run(
    recipe,
    splits,
    directory: RunDirectory,
    *,
    label=None,
    keep_embeddings=False,
) -> dict:
    """Trains one encoder, keeps its best weights, scores it once.

    A killed run goes on from its last evaluation, bit by bit as if it had
    not been killed.

    Args:
        recipe: The settings.
        splits: `RetrievalSplits` with a validation side; the weights with
            the best `val_map_at_r` there are kept.
        directory: Where everything is written.
        label: What stands before the progress bar; the run's name by
            default.
        keep_embeddings: Keep the test embeddings too, for ensembles.

    Returns:
        The test scores, which are in `scores.json` as well.

    Raises:
        FileExistsError: the directory holds a finished run; see
            `RunDirectory.begin` for the other errors.
    """
    # TensorFlow takes seconds to import: not for an error or for --help.
    directory.begin(run_settings(recipe))
    import keras

    import keras_gsp as gsp
    from training.evaluate import score
    from training.protocols.kept_embeddings import save_test_embeddings
    from training.recipes import batches
    from training.recipes.callbacks import build_callbacks
    from training.recipes.features import complete_encoder
    from training.recipes.learner import build_learner

    train = splits.train
    shape = batches.image_shape(recipe, train)
    keras.backend.clear_session()
    learner = build_learner(
        recipe, num_classes=train.num_classes, image_shape=shape
    )
    callbacks = build_callbacks(
        recipe, splits, directory, label=label or directory.path.name
    )
    resume = gsp.callbacks.ExactResume(
        directory.checkpoint, callbacks=callbacks, settings=asdict(recipe)
    )
    first_step = resume.restore(learner)
    learner.fit(
        batches.training_batches(recipe, train, first_step=first_step),
        epochs=recipe.steps // recipe.steps_per_evaluation,
        steps_per_epoch=recipe.steps_per_evaluation,
        callbacks=[*callbacks, resume],
        shuffle=False,
        verbose=0,
    )
    complete_encoder(recipe, learner.encoder).save(directory.encoder)
    if keep_embeddings:
        save_test_embeddings(directory.path, learner.encoder, recipe, splits)
    scores = score(
        learner.encoder, recipe, splits.test, splits.query, splits.gallery
    )
    write_json(directory.scores, scores)
    return scores


def main(arguments=None):
    """Runs the command line."""
    try:
        command = _parse(arguments)
        recipe = command.recipe
        name = command.name or run_name(command.recipe_name, recipe)
        directory = RunDirectory(command.runs / name)
        directory.check(run_settings(recipe))
        scores = train_recipe(recipe, directory)
    except ERRORS as error:
        sys.exit(f"error: {error}")
    print(report(directory, scores))


def train_recipe(recipe, directory: RunDirectory) -> dict:
    """Reads a recipe's data and runs its protocol; see `train_run`."""
    from training.recipes.data import load_splits, read_recipe

    if recipe.protocol == "single":
        return train_run(recipe, load_splits(recipe), directory)
    from training.protocols.run_protocol import run_protocol

    splits = read_recipe(recipe)
    directory.begin(run_settings(recipe))
    return run_protocol(recipe, splits, directory)


def report(directory: RunDirectory, scores: dict) -> str:
    """What a finished run says: its scores, or a protocol's table."""
    if "protocol" in scores:
        from training.protocols.report import protocol_report

        return protocol_report(directory.path, scores)
    lines = [f"  {name:>16}  {value:.4f}" for name, value in scores.items()]
    title = (
        f"{directory.path}: {scores['num_queries']} images of unseen classes"
    )
    return "\n".join([title, *lines])


def _parse(arguments):
    program = "python -m training.train"
    name, recipe, options = choose_recipe(
        arguments, f"usage: {program} RECIPE [options]"
    )
    return tyro.cli(
        tyro.conf.OmitArgPrefixes[TrainCommand],
        default=TrainCommand(recipe=recipe, recipe_name=name),
        prog=f"{program} {name}",
        description=__doc__,
        args=options,
    )


def run_settings(recipe) -> dict:
    """What `settings.json` holds: recipe, versions and commit."""
    return {"recipe": asdict(recipe), "environment": environment()}


if __name__ == "__main__":
    main()
