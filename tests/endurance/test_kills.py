"""Runs killed at random moments end as runs that were left alone.

    python -m pytest -m slow tests/endurance/test_kills.py --kills 1000

`kill -9` ends a run in a step, in an evaluation or in the middle of a file; the
same command resumes it.
"""

import itertools
import json
import multiprocessing
import os
import pkgutil
import random
import signal
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest

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
    "step": "training.runs.callbacks.History.on_train_batch_end",
    "evaluation": "keras_gsp.callbacks.retrieval_evaluation.retrieval_scores",
    "write": "os.fsync",
}


def train_and_die(folder, moment, number):
    """Trains or resumes; dies at that call of a moment, 0: never."""
    from tests.training.test_train import SPLITS
    from training.recipes import learner
    from training.runs.run_directory import RunDirectory
    from training.runs.train_run import train_run

    original, calls = pkgutil.resolve_name(CALLS[moment]), itertools.count(1)

    def killing(*args, **kwargs):
        if next(calls) == number:
            if moment == "write":  # Half a file is on the disk.
                os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    mock.patch(CALLS[moment], killing).start()
    learner.START_BATCHES = 2  # Enough for five classes.
    train_run(RECIPES[folder.name], SPLITS, RunDirectory(folder))


def exit_code(*arguments):
    """Of a new process: 0 where it ends, else it was killed."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["training.runs.train_run"])
    process = processes.Process(target=train_and_die, args=arguments)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode


def outcome(folder):
    """Name -> everything that a finished run has left, as bytes or text."""
    with np.load(max((folder / "checkpoint").glob("step-*.npz"))) as file:
        left = {f"checkpoint {n}": file[n].tobytes() for n in file.files}
    encoder = keras.saving.load_model(folder / "encoder.keras", compile=False)
    for number, weight in enumerate(encoder.get_weights()):
        left[f"encoder {number}"] = weight.tobytes()
    for line in (folder / "history.jsonl").read_text().splitlines():
        line = json.loads(line) | {"seconds": None}
        left |= {f"step {line['step']} {k}": repr(v) for k, v in line.items()}
    scores = json.loads((folder / "scores.json").read_text())
    return left | {f"score {k}": repr(v) for k, v in scores.items()}


@pytest.mark.slow
def test_killed_runs_end_as_runs_left_alone(tmp_path, request):
    wanted = request.config.getoption("--kills")
    draw, killed, alone = random.Random(wanted), 0, {}
    for number, name in enumerate(itertools.cycle(RECIPES)):
        # A run remembers its folder's name: the same one for all.
        if name not in alone:
            exit_code(tmp_path / "whole" / name, "step", 0)
            alone[name] = outcome(tmp_path / "whole" / name)
        folder = Path(tmp_path / f"killed-{number}" / name)
        for _ in range(min(16, wanted - killed)):
            if not exit_code(folder, draw.choice([*CALLS]), draw.randint(1, 6)):
                break
            killed += 1
        else:
            exit_code(folder, "step", 0)
        assert outcome(folder) == alone[name]
        if killed >= wanted:
            return
