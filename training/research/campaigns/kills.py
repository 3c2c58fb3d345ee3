"""Runs killed at random moments.

    python -m training.research.campaigns.kills --json docs/results/kills.json

A small network trains with GSP, ZSR and random crops, and with chance
constrained programming (CCP), a memory of past embeddings (XBM) or low-rank
factors of its weights (LoRA). `kill -9` ends its process in a step, in the
middle of a file that is being written, in an evaluation, in the choice of the
next proxies, or at any moment. The same command resumes until the run is
finished. Compared with a run that was not killed: every array of the last checkpoint (weights, memory, states of the
optimizer, of random generators and callbacks), the weights of the saved encoder
and its configuration with the preprocessing, every line of the history but its
seconds, and the test scores.

Each start is a new process, forked from one that has imported the packages and
computed nothing. Rows with `eager` run TensorFlow's functions eagerly; the
others trace them, which takes most of a start.

Run the command again with the same options to add a stretch to the record.
"""

import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from training.research.campaigns.killed_run import (
    RECIPES,
    TWO_DEVICES,
    error_file,
    train_silently,
)
from training.research.report import (
    CommandSettings,
    Table,
    read_record,
    run_measurement,
)
from training.runs.environment import environment

PLACES = {"step": 4, "write": 4, "evaluation": 2, "problem": 2, "any": 0}
"""Where to kill -> largest number of visits before the kill."""
HEADINGS = "trained with", "runs", "kills", "values compared", "differences"
STRETCHES = "date", "commit", "minutes", "runs", "kills", "differences"
# What takes seconds to import, once for all processes.
IMPORTED = (
    "tensorflow",
    "h5py",
    "keras_gsp",
    "training.research.campaigns.killed_run",
    "training.runs.callbacks",
    "training.recipes.features",
    "training.recipes.learner",
    "training.runs.scoring",
    "training.runs.train_run",
)


@dataclass(frozen=True)
class KilledRun:
    """A run that was killed: where, and the values that differ then."""

    recipe: str
    places: tuple[str, ...]
    num_values: int
    differences: tuple[str, ...]

    @property
    def rows(self) -> list[list[str]]:
        """Rows of `HEADINGS`: one of the recipe, one of all."""
        counts = 1, len(self.places), self.num_values, len(self.differences)
        return [[name, *map(str, counts)] for name in (self.recipe, "all")]


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Number of runs and kills."""

    runs: int = 10
    """Runs that are killed."""
    kills: int = 16
    """Largest number of kills of a run."""
    backend: Literal["tensorflow", "jax"] = "tensorflow"
    """Keras backend."""
    eager: bool = False
    """Run TensorFlow's functions eagerly, which starts several times faster."""
    minutes: float | None = None
    """No run begins later; no limit by default."""
    seed: int = 0
    """Seed of the moments, and of the training."""

    SMALL = {"runs": 1, "kills": 1}


def measure(settings: Settings) -> Iterator[Table]:
    """Yields tables of runs, moments and stretches, earlier ones included."""
    before = earlier_tables(settings)
    start = time.monotonic()
    rows, moments = [], []
    for run in killed_runs(settings, stretch=len(before[2])):
        print(run.recipe, *run.places, *run.differences, sep=" | ", flush=True)
        rows += run.rows
        moments += [[place.split()[0], "1"] for place in run.places]
    minutes = (time.monotonic() - start) / 60
    _, num_runs, num_kills, _, num_differences = added([], rows)[-1]
    stretch = [
        time.strftime("%Y-%m-%d", time.gmtime()),
        (environment().get("commit") or "unknown")[:12],
        f"{minutes:.0f}",
        *(num_runs, num_kills, num_differences),
    ]
    total = added(before[0], rows)
    yield Table(HEADINGS, total, title=settings.backend)
    moments = sorted(added(before[1], moments))
    yield Table(("killed in", "times"), moments, 1, "Moments")
    yield Table(STRETCHES, [*before[2], stretch], 2, "Stretches")
    if total[-1][-1] != "0":
        raise ValueError("A run that was killed ended differently.")


def earlier_tables(settings: Settings) -> list[list[list[str]]]:
    """Rows of the three tables of the record that the command adds to."""
    if settings.json is None or not settings.json.exists():
        return [[], [], []]
    record = read_record(settings.json)
    earlier = {
        name: record["settings"].get(name) for name in ("backend", "seed")
    }
    headings = [tuple(table["headings"]) for table in record["tables"]]
    is_same = earlier.items() <= vars(settings).items()
    if not is_same or headings[::2] != [HEADINGS, STRETCHES]:
        raise ValueError(
            "`json` must be a new file, or one that this version of the command "
            "wrote with the same backend and seed. Received: "
            f"{settings.json} with {earlier}. Name another file."
        )
    return [table["rows"] for table in record["tables"]]


def added(
    before: Sequence[Sequence[str]], now: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Adds the numbers of rows with the same first cell; `all` comes last."""
    sums: dict[str, np.ndarray] = {}
    for name, *numbers in (*before, *now):
        sums[name] = sums.get(name, 0) + np.array(numbers, int)
    order = sorted(sums, key=lambda name: name == "all")
    return [[name, *map(str, sums[name])] for name in order]


def killed_runs(settings: Settings, stretch: int = 0) -> Iterator[KilledRun]:
    """Kills each run until it is finished; each stretch at other moments."""
    draw = random.Random(f"{settings.seed} {stretch}")
    start = time.monotonic()
    recipes = [*RECIPES]
    if settings.backend != "jax":
        recipes.remove(TWO_DEVICES)
    with tempfile.TemporaryDirectory() as folder:
        # Compiled once: resumed runs take a third of the time.
        compiled = Path(folder) / "compiled"
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))
        alone: dict[str, dict] = {}
        seconds: dict[str, float] = {}
        for number in range(settings.runs):
            minutes = (time.monotonic() - start) / 60
            if settings.minutes is not None and minutes > settings.minutes:
                return
            recipe = recipes[(number + stretch) % len(recipes)]
            if recipe not in alone:
                # A run remembers its folder's name: the same one for all.
                whole = Path(folder) / "whole" / recipe
                began = time.monotonic()
                _require_finished(_train(settings, whole, recipe), whole)
                seconds[recipe] = time.monotonic() - began
                alone[recipe] = outcome(whole)
            killed = Path(folder) / f"killed-{number}" / recipe
            places = _kill_until_finished(
                settings, killed, recipe, draw, seconds[recipe]
            )
            found = outcome(killed)
            yield KilledRun(
                f"{recipe}, eager" if settings.eager else recipe,
                tuple(places),
                len(alone[recipe]),
                tuple(differences(alone[recipe], found)),
            )
            shutil.rmtree(killed.parent)


def outcome(folder: Path) -> dict[str, bytes]:
    """Name -> bytes of everything that a finished run has left."""
    found = {}
    checkpoint = max((folder / "checkpoint").glob("step-*.npz"))
    with np.load(checkpoint) as arrays:
        for name in arrays.files:
            found[f"checkpoint {name}"] = _bytes(arrays[name])
    import h5py

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            found[f"encoder {name}"] = _bytes(item[()])

    with zipfile.ZipFile(folder / "encoder.keras") as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
        # With the preprocessing that the encoder expects.
        # Keras numbers shared objects by their address in memory.
        config = re.sub(
            rb'"shared_object_id": \d+', b"", archive.read("config.json")
        )
        found["encoder config"] = config
    with h5py.File(weights) as file:
        file.visititems(add)
    lines = (folder / "history.jsonl").read_text().splitlines()
    for line in map(json.loads, lines):
        for name in line.keys() - {"seconds"}:
            key = f"step {line['step']} {name}"
            found[key] = repr(line[name]).encode()
    scores = json.loads((folder / "scores.json").read_text())
    for name, value in scores.items():
        found[f"score {name}"] = repr(value).encode()
    return found


def differences(expected: dict[str, bytes], found: dict[str, bytes]) -> list:
    """Names of values that differ in a bit or are missing on one side."""
    return sorted(
        name
        for name in expected.keys() | found.keys()
        if expected.get(name) != found.get(name)
    )


def _bytes(array):
    array = np.asarray(array)
    return f"{array.dtype} {array.shape} ".encode() + array.tobytes()


def _kill_until_finished(settings, folder, recipe, draw, seconds):
    """Returns where the run was killed, in order; it is finished then."""
    places: list[str] = []
    while len(places) < settings.kills:
        place = draw.choice(list(PLACES))
        if place == "problem" and not RECIPES[recipe].samples_proxies:
            place = "step"
        number = draw.randint(1, PLACES[place]) if PLACES[place] else 0
        wait = draw.uniform(0, seconds / 3) if place == "any" else None
        code = _train(settings, folder, recipe, place, number, wait)
        if code != -signal.SIGKILL:
            _require_finished(code, folder, places)
            return places
        places.append(f"{place} {number}" if number else place)
    _require_finished(_train(settings, folder, recipe), folder, places)
    return places


def _train(settings, folder, recipe, place="any", number=0, wait=None):
    """Trains in a new process and returns its exit code."""
    os.environ["KERAS_BACKEND"] = settings.backend
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(list(IMPORTED))
    arguments = str(folder), recipe, settings.seed, place, number
    process = processes.Process(
        target=train_silently, args=(*arguments, settings.eager)
    )
    process.start()
    process.join(wait)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def _require_finished(code, folder, places=()):
    if code:
        file = error_file(folder)
        found = file.read_text() if file.exists() else "no error of Python\n"
        killed = f" after kills in {', '.join(places)}" if places else ""
        raise RuntimeError(
            f"A run must end with exit code 0. Received: {code}{killed}. Its "
            f"error:\n{found}"
        )


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
