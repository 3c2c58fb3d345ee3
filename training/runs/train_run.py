"""Trains one run: starts or resumes, keeps the best weights, scores once."""

import contextlib
from collections.abc import Sequence
from typing import Any

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import Recipe
from training.runs.distribution import NONE, Distribution
from training.runs.run_directory import RunDirectory, environment, write_json
from training.runs.verdict import compared, verdict


def train_run(
    recipe: Recipe,
    splits: RetrievalSplits,
    directory: RunDirectory,
    *,
    label: str | None = None,
    keep_embeddings: bool = False,
    distribution: Distribution = NONE,
    callbacks: Sequence[Any] = (),
) -> dict:
    """Trains one encoder, keeps its best weights, scores it once.

    A killed run resumes from its last evaluation and ends bit by bit as if it
    had not been killed. Returns the test scores, also in `scores.json`.
    `keep_embeddings` keeps the test embeddings too, for ensembles; `callbacks`
    are more Keras callbacks of `fit`, without a state.
    """
    distribution.check(recipe, splits.train.num_classes)
    settings = run_settings(recipe, distribution)
    # TensorFlow takes seconds to import: not for an error or for --help.
    import keras

    from keras_gsp._processes import from_first_process
    from training.recipes.batches import with_pixels
    from training.runs.raw_baseline import raw_scores
    from training.runs.scoring import FILE, score

    keras.backend.clear_session()
    with distribution.scope(), contextlib.ExitStack() as held:
        from_first_process(lambda: _begin(directory, settings, splits, held))
        splits = with_pixels(recipe, splits)
        raw = raw_scores(recipe, splits)
        label = label or directory.path.name
        shrinkage = raw["whitened"]["shrinkage"]
        encoder = _train(
            recipe,
            splits,
            directory,
            label,
            distribution,
            shrinkage,
            callbacks,
        )
        file = directory.path / FILE if keep_embeddings else None
        scores = score(encoder, recipe, splits.scored(), file)
        labels = (splits.query or splits.test).labels
        gain = compared(scores.pop("queries"), raw, labels)
        del raw["queries"]
        scores |= {"raw": raw, "gain": gain}
        return from_first_process(lambda: _finish(recipe, directory, scores))


def run_settings(recipe: Recipe, distribution: Distribution = NONE) -> dict:
    """Returns the content of `settings.json`."""
    return {
        "recipe": recipe.settings,
        "environment": environment(),
        **distribution.settings,
    }


def _begin(directory, settings, splits, held):
    """Makes the folder, locked for as long as `held` is open."""
    directory.begin(settings)
    held.enter_context(directory.locked())
    # Another process may have begun it, or finished it, just now.
    directory.check(settings)
    directory.keep_classes(splits.classes())


def _train(recipe, splits, directory, label, distribution, shrinkage, others):
    """Trains and saves the encoder with its best weights; returns it."""
    import keras_gsp as gsp
    from keras_gsp._processes import from_first_process
    from training.recipes import batches
    from training.recipes.features import complete_encoder
    from training.recipes.learner import build_learner, start_from_data
    from training.runs.callbacks import build_callbacks

    train = splits.train
    learner = build_learner(
        recipe,
        num_classes=train.num_classes,
        image_shape=batches.image_shape(recipe, train),
    )
    callbacks = build_callbacks(recipe, splits, directory, label=label)
    resume = gsp.callbacks.ExactResume(
        directory.checkpoint,
        callbacks=callbacks,
        settings=recipe.settings | distribution.settings,
    )
    first_step = resume.restore(learner)
    if not first_step:
        start_from_data(recipe, learner, train, shrinkage)
    learner.fit(
        batches.training_batches(
            recipe,
            train,
            first_step=first_step,
            positions=distribution.positions(recipe.batch_size),
        ),
        epochs=recipe.evaluations,
        steps_per_epoch=recipe.interval,
        callbacks=[*callbacks, *others, resume],
        shuffle=False,
        verbose=0,
    )
    encoder = gsp.models.merge_lora(complete_encoder(recipe, learner.encoder))
    from_first_process(lambda: encoder.save(directory.encoder))
    return learner.encoder


def _finish(recipe, directory, scores):
    """Adds which step was kept and what it gained; writes `scores.json`."""
    from training.runs.callbacks import kept_line, solved_problems

    history = directory.read_history()
    kept = kept_line(history)
    scores |= {"kept_step": kept["step"], "steps": history[-1]["step"]}
    scores["val_map_at_r"] = kept["val_map_at_r"]
    if recipe.samples_proxies:
        # The weights may be those of an earlier problem.
        scores |= solved_problems(history)
    first = history[0].items()
    scores["untrained"] = {k: v for k, v in first if k.startswith("val_")}
    scores["verdict"] = verdict(scores)
    write_json(directory.scores, scores)
    return scores
