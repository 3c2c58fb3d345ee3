"""One training run: begin or go on, keep the best weights, score them once."""

from dataclasses import asdict

from training.recipes.recipe import Recipe
from training.runs.environment import environment
from training.runs.run_directory import RunDirectory, write_json
from training.runs.run_lock import RunLock

ERRORS = (ValueError, TypeError, OSError)
"""What a setting, a folder or a disk that cannot be used raises."""


def train_run(
    recipe: Recipe,
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
        FileExistsError: the directory holds a finished run, or another
            process trains into it; see `RunDirectory.begin` for the other
            errors.
        FileNotFoundError: the directory went away.
        PermissionError: it cannot be written to.
        OSError: the disk is full.
    """
    settings = run_settings(recipe)
    # TensorFlow takes seconds to import: not for an error or for --help.
    with directory.being_written():
        directory.begin(settings)
        with RunLock(directory.path):
            # Another process may have begun it, or finished it, just now.
            directory.check(settings)
            return _train(recipe, splits, directory, label, keep_embeddings)


def _train(recipe, splits, directory, label, keep_embeddings):
    import keras

    import keras_gsp as gsp
    from training.recipes import batches
    from training.recipes.callbacks import build_callbacks
    from training.recipes.features import complete_encoder
    from training.recipes.learner import build_learner, start_prototypes
    from training.runs.kept_embeddings import save_test_embeddings
    from training.runs.scoring import score

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
    if not first_step:
        start_prototypes(
            recipe, learner, batches.training_batches(recipe, train)
        )
    learner.fit(
        batches.training_batches(recipe, train, first_step=first_step),
        epochs=recipe.steps // recipe.steps_per_evaluation,
        steps_per_epoch=recipe.steps_per_evaluation,
        callbacks=[*callbacks, resume],
        shuffle=False,
        verbose=0,
    )
    directory.check_is_there()
    complete_encoder(recipe, learner.encoder).save(directory.encoder)
    if keep_embeddings:
        save_test_embeddings(directory.path, learner.encoder, recipe, splits)
    scores = score(
        learner.encoder, recipe, splits.test, splits.query, splits.gallery
    )
    if recipe.ccp != "off":
        # The weights may be those of an earlier problem: ask the history.
        scores["num_problems"] = max(
            line.get("ccp_problem", 0) for line in directory.read_history()
        )
    directory.check_is_there()
    write_json(directory.scores, scores)
    return scores


def run_settings(recipe: Recipe) -> dict:
    """What `settings.json` holds: recipe, versions and commit."""
    return {"recipe": asdict(recipe), "environment": environment()}
