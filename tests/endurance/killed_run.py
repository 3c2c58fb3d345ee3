"""A small training run that kills its own process at a given position."""

import itertools
import os
import pkgutil
import signal
import tempfile
import traceback
from pathlib import Path
from unittest import mock

import numpy as np

from training.recipes.recipe import Recipe
from training.runs.distribution import Distribution

SMALL = Recipe.of(
    **{"dataset": "glyphs", "backbone": "glyph-cnn-local", "pooling": "gsp"},
    **{"regularizer": "zsr", "embedding_size": 8, "num_prototypes": 4},
    **{"classes_per_batch": 4, "samples_per_class": 2, "learning_rate": 2e-3},
    **{"crop_size": 14, "resize": 16, "steps": 24, "steps_per_evaluation": 2},
)
# Patience 1, so that a short run solves several problems.
CCP = SMALL.with_(
    **{"ccp": "on", "ccp_arguments": {"patience": 1}, "ccp_pool_size": 6},
    **{"proxies_per_class": 2, "normalization": "ball"},
)
TWO_DEVICES = "CCP, two devices"
RECIPES = {
    "CCP": CCP,
    # Warm after 4 of 24 steps, full after 12.
    "XBM": SMALL.with_(memory={"capacity": 64, "warmup_steps": 4}),
    "LoRA": SMALL.with_(lora_rank=2),
    TWO_DEVICES: CCP,
}
# The function whose call is that moment.
CALLS = {
    "step": "training.runs.callbacks.ProgressBar.on_train_batch_end",
    "evaluation": "keras_gsp.callbacks.retrieval_evaluation.retrieval_scores",
    "problem": "keras_gsp.callbacks.chance_constrained.greedy_k_center",
}


def kill_now():
    """Ends the process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_call(place, number):
    """Kills the process at the `number`-th call of a place."""
    original, calls = pkgutil.resolve_name(CALLS[place]), itertools.count(1)

    def killing(*args, **kwargs):
        if next(calls) == number:
            kill_now()
        return original(*args, **kwargs)

    mock.patch(CALLS[place], killing).start()


def kill_in_write(number):
    """Kills the process half-way through its `number`-th file."""
    fsync, calls = os.fsync, itertools.count(1)

    def killing_fsync(descriptor):
        # Two calls a file: the file, then its folder.
        if next(calls) == 2 * number - 1:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            kill_now()
        fsync(descriptor)

    os.fsync = killing_fsync


def small_splits(seed):
    """Noisy colors in memory, with training, validation and test classes."""
    from keras_gsp.data import ImageSet
    from training.datasets.image_set import RetrievalSplits

    generator = np.random.default_rng(seed)

    def colored(names):
        labels = np.repeat(np.arange(len(names)), 6)
        colors = generator.integers(90, 130, (len(names), 1, 1, 3))
        noise = generator.integers(0, 120, (len(labels), 16, 16, 3))
        images = (colors[labels] + noise).astype("uint8")
        return ImageSet(labels=labels, class_names=tuple(names), images=images)

    train, test, validation = map(colored, ("abcdef", "xyz", "mno"))
    return RetrievalSplits("colors", train, test, validation=validation)


def train_and_die(folder, recipe, seed, place, number, eager):
    """Trains a small run of `RECIPES` in a folder, or resumes it.

    The process kills itself at the `number`-th visit of `place`: a key of
    `CALLS`, `"write"`, or `"any"` for nowhere. With `eager`, TensorFlow traces
    no function, which takes most of a start.
    """
    if place == "write":
        kill_in_write(number)
    elif place != "any":
        kill_in_call(place, number)
    from training.recipes import learner
    from training.runs.run_directory import RunDirectory
    from training.runs.train_run import train_run

    # Enough for six classes.
    learner.START_BATCHES = 2
    if eager:
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)
    if recipe == TWO_DEVICES:
        # Read when JAX counts its devices.
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    train_run(
        RECIPES[recipe].with_(seed=seed),
        small_splits(seed),
        RunDirectory(Path(folder)),
        distribution=Distribution("data" if recipe == TWO_DEVICES else "none"),
    )


def train_in_process(folder, *arguments):
    """`train_and_die`; an error is written to `error.txt` beside the folder."""
    # TensorFlow's generated files; a killed process leaves them.
    tempfile.tempdir = str(Path(folder).parent)
    try:
        train_and_die(folder, *arguments)
    except Exception:
        (Path(folder).parent / "error.txt").write_text(traceback.format_exc())
        raise
