"""A small training run that kills itself where it is told to.

`python -m training.research.campaigns.kills` starts it in a process of its own, again
and again with the same folder, until the run is finished.
"""

import argparse
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.recipe import Recipe

SMALL = Recipe.of(
    dataset="glyphs",
    pooling="gsp",
    regularizer="zsr",
    embedding_size=8,
    num_prototypes=4,
    classes_per_batch=4,
    samples_per_class=2,
    learning_rate=2e-3,
    steps=18,
    steps_per_evaluation=3,
)
RECIPES = {
    # No problem is given more than one evaluation without a gain: several.
    "ccp": SMALL.with_(
        ccp="on",
        ccp_patience=1,
        ccp_pool_size=6,
        proxies_per_class=2,
        normalization="ball",
    ),
    # Warm after 4 of 18 steps, full after 12.
    "xbm": SMALL.with_(memory="xbm", memory_capacity=64, memory_warmup_steps=4),
}
CALLS = {
    "step": ("training.runs.progress", "ProgressBar.on_train_batch_end"),
    "evaluation": (
        "keras_gsp.callbacks.retrieval_evaluation",
        "retrieval_scores",
    ),
    "problem": (
        "keras_gsp.callbacks.chance_constrained.new_proxies",
        "greedy_k_center",
    ),
}
"""Place -> module and the function in it whose call means being there."""


def kill_now() -> None:
    """What `kill -9` does: nothing of Python runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_call(place: str, number: int) -> None:
    """Kills the process where it enters a place for the so manieth time."""
    module_name, path = CALLS[place]
    owner = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    original: Callable = getattr(owner, name)
    left = number

    def killing(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            kill_now()
        return original(*args, **kwargs)

    setattr(owner, name, killing)


def kill_in_write(number: int) -> None:
    """Kills the process half-way through its so manieth file."""
    fsync, calls = os.fsync, []

    def killing_fsync(descriptor: int) -> None:
        calls.append(descriptor)
        # Two calls a file: the file, then its folder.
        if len(calls) == 2 * number - 1:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            kill_now()
        fsync(descriptor)

    os.fsync = killing_fsync  # type: ignore[assignment]


def small_splits(seed: int) -> Any:
    """Noisy colors in memory: classes to train, validate and test on."""
    from keras_gsp.data import ImageSet
    from training.datasets.image_set import RetrievalSplits

    generator = np.random.default_rng(seed)

    def colored(names):
        labels = np.repeat(np.arange(len(names)), 6)
        colors = generator.integers(90, 130, (len(names), 1, 1, 3))
        noise = generator.integers(0, 120, (len(labels), 16, 16, 3))
        return ImageSet(
            labels=labels,
            class_names=tuple(names),
            images=(colors[labels] + noise).astype("uint8"),
        )

    return RetrievalSplits(
        "colors",
        train=colored("abcdef"),
        test=colored("xyz"),
        validation=colored("mno"),
    )


def train_and_die(
    folder: str, recipe: str, seed: int, place: str = "any", number: int = 0
) -> None:
    """Trains a small run into a folder, or goes on with it.

    Args:
        folder: The run's.
        recipe: One of `RECIPES`.
        seed: Of the training.
        place: Where the process kills itself: a key of `CALLS`, `"write"`, or
            `"any"` for nowhere.
        number: The so manieth time that it is there.
    """
    if place == "write":
        kill_in_write(number)
    elif place != "any":
        kill_in_call(place, number)
    from training.runs.run_directory import RunDirectory
    from training.runs.train_run import train_run

    train_run(
        RECIPES[recipe].with_(seed=seed),
        small_splits(seed),
        RunDirectory(Path(folder)),
    )


def train_silently(folder: str, *arguments: Any) -> None:
    """`train_and_die` without a progress bar: for one among thousands.

    An error goes into `error.txt` beside the run's folder.
    """
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        try:
            train_and_die(folder, *arguments)
        except Exception:
            file = error_file(folder)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(traceback.format_exc())
            raise
        finally:
            sys.stdout, sys.stderr = before


def error_file(folder: str | Path) -> Path:
    """Where an error of a run is written."""
    return Path(folder).parent / "error.txt"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--recipe", choices=RECIPES, default="ccp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", choices=[*CALLS, "write"], default="any")
    parser.add_argument("--number", type=int, default=1)
    arguments = parser.parse_args()
    train_and_die(**vars(arguments))


if __name__ == "__main__":
    main()
