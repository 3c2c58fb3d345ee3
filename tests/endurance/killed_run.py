"""A small training run that kills its own process at a given moment."""

import itertools
import os
import pkgutil
import signal
import traceback
from pathlib import Path
from unittest import mock

import numpy as np

from training.recipes.recipe import Recipe

SMALL = Recipe.of(
    **{"dataset": "glyphs", "backbone": "glyph-cnn-local", "pooling": "gsp"},
    **{"regularizer": "zsr", "embedding_size": 8, "num_prototypes": 4},
    **{"classes_per_batch": 4, "samples_per_class": 2, "learning_rate": 2e-3},
    **{"crop_size": 14, "resize": 16, "steps": 24, "steps_per_evaluation": 2},
)
RECIPES = {
    # Patience 1, so that a short run solves several problems.
    "CCP": SMALL.with_(
        **{"ccp": "on", "ccp_arguments": {"patience": 1}, "ccp_pool_size": 6},
        **{"proxies_per_class": 2, "normalization": "ball"},
    ),
    # Warm after 4 of 24 steps, full after 12.
    "XBM": SMALL.with_(memory={"capacity": 64, "warmup_steps": 4}),
    "LoRA": SMALL.with_(lora_rank=2),
}
# Moment -> the function whose call is that moment.
CALLS = {
    "step": "training.runs.callbacks.ProgressBar.on_train_batch_end",
    "evaluation": "keras_gsp.callbacks.retrieval_evaluation.retrieval_scores",
    "write": "os.fsync",
}


def train_and_die(folder, name, moment, number):
    """Trains a run of `RECIPES`, or resumes it; an error goes to a file.

    The process kills itself at the `number`-th call of a moment; 0: never.
    """
    original, calls = pkgutil.resolve_name(CALLS[moment]), itertools.count(1)

    def killing(*args, **kwargs):
        if next(calls) == number:
            if moment == "write":  # Half a file is on the disk.
                os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    mock.patch(CALLS[moment], killing).start()
    try:
        _train(Path(folder), RECIPES[name])
    except Exception:
        Path(folder).with_suffix(".txt").write_text(traceback.format_exc())
        raise


def _train(folder, recipe):
    from keras_gsp.data import ImageSet
    from training.datasets.image_set import RetrievalSplits
    from training.recipes import learner
    from training.runs.run_directory import RunDirectory
    from training.runs.train_run import train_run

    learner.START_BATCHES = 2  # Enough for six classes.
    generator = np.random.default_rng(0)

    def colored(names):
        labels = np.repeat(np.arange(len(names)), 6)
        colors = generator.integers(90, 130, (len(names), 1, 1, 3))
        noise = generator.integers(0, 120, (len(labels), 16, 16, 3))
        images = (colors[labels] + noise).astype("uint8")
        return ImageSet(labels=labels, class_names=tuple(names), images=images)

    train, test, validation = map(colored, ("abcdef", "xyz", "mno"))
    splits = RetrievalSplits("colors", train, test, validation=validation)
    train_run(recipe, splits, RunDirectory(folder))
