"""Training killed again and again: `python -m training.research.campaigns.kills`.

Every run is killed at random moments, gone on with by the same command until
it is finished, and then compared, bit by bit, with a run that was left alone.
"""

import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from training.research.campaigns.killed_run import error_file, train_silently

ABOUT = """
A small network trains with GSP, ZSR and chance constrained programming or a
memory of past embeddings. `kill -9` ends its process in a step, in the
middle of a file that is being written, where an evaluation computes its
scores, where the next proxies are chosen, or at any moment. The same command
goes on until the run is finished. Compared with the run that was left alone:
every array of the last checkpoint (weights, memory, the optimizer's and
random generators' states, what the callbacks remember), the encoder that was
saved, every line of the history but its seconds, and the test scores.
"""
PLACES = {"step": 12, "write": 10, "evaluation": 4, "problem": 2, "any": 0}
"""Where to kill -> up to the so manieth time that a process is there."""
HEADINGS = (
    "trained with",
    "runs",
    "kills",
    "resumes",
    "values compared",
    "differences",
)
# What takes seconds to import, once for all processes.
IMPORTED = (
    "tensorflow",
    "h5py",
    "keras_gsp",
    "training.research.campaigns.killed_run",
    "training.recipes.callbacks",
    "training.recipes.features",
    "training.recipes.learner",
    "training.runs.kept_embeddings",
    "training.runs.scoring",
    "training.runs.train_run",
)


@dataclass(frozen=True)
class KilledRun:
    """One run that was killed, and how it ended.

    Attributes:
        recipe: Word of what it trained with.
        places: Where it was killed, in turn.
        num_values: Values compared.
        differences: Names of those that differ.
    """

    recipe: str
    places: tuple[str, ...]
    num_values: int
    differences: tuple[str, ...]


@dataclass(frozen=True)
class KillsCommand:
    """Kills runs at random moments and compares how they end."""

    runs: int = 10
    """Runs that are killed."""
    kills: int = 3
    """Kills of a run, at most."""
    backend: Literal["tensorflow", "jax"] = "tensorflow"
    """Keras's backend."""
    minutes: float | None = None
    """No run begins later than that; no limit by default."""
    seed: int = 0
    """Seed of the moments, and of the training."""
    json: Path | None = None
    """File for the record."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        KillsCommand,
        prog="python -m training.research.campaigns.kills",
        description=__doc__,
        args=arguments,
    )
    if command.runs < 1:
        sys.exit(
            f"error: `runs` must be at least 1. Received: runs={command.runs}."
        )
    runs: list[KilledRun] = []
    for run in run_campaign(command):
        runs.append(run)
        words = ", ".join(run.places)
        print(
            f"{len(runs)} | {run.recipe} | {words} | {run.num_values} values "
            f"| {len(run.differences)} differences",
            flush=True,
        )
        # After each: whatever stops the campaign, its record is there.
        if command.json is not None:
            _keep(command, runs)
    *_, total = rows_of(runs)
    print(
        f"{total[1]} runs, {total[2]} kills, {total[3]} resumes, "
        f"{total[4]} values compared, {total[5]} differences"
    )
    if any(run.differences for run in runs):
        sys.exit("error: a run that was killed ended differently")


def run_campaign(command: KillsCommand) -> Iterator[KilledRun]:
    """Kills runs until they are finished, and yields how each ended."""
    from training.research.campaigns.killed_run import RECIPES

    draw = random.Random(command.seed)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        alone: dict[str, dict] = {}
        for number in range(command.runs):
            minutes = (time.monotonic() - start) / 60
            if command.minutes is not None and minutes > command.minutes:
                return
            recipe = list(RECIPES)[number % len(RECIPES)]
            if recipe not in alone:
                # A run remembers its folder's name: the same one for all.
                whole = Path(folder) / "whole" / recipe
                _require_finished(_train(command, whole, recipe), whole)
                alone[recipe] = outcome(whole)
            killed = Path(folder) / f"killed-{number}" / recipe
            places = _kill_until_finished(command, killed, recipe, draw)
            found = outcome(killed)
            yield KilledRun(
                recipe,
                tuple(places),
                len(alone[recipe]),
                tuple(differences(alone[recipe], found)),
            )
            shutil.rmtree(killed.parent)


def rows_of(runs: Sequence[KilledRun]) -> list[list[str]]:
    """Rows of `HEADINGS`: one for each recipe, and one for all."""
    recipes = dict.fromkeys(run.recipe for run in runs)
    rows = []
    for name in [*recipes, "all"]:
        own = [run for run in runs if name in (run.recipe, "all")]
        kills = sum(len(run.places) for run in own)
        numbers = (
            len(own),
            kills,
            kills,  # Every kill is followed by the same command.
            sum(run.num_values for run in own),
            sum(len(run.differences) for run in own),
        )
        rows.append([name, *map(str, numbers)])
    return rows


def outcome(folder: Path) -> dict[str, bytes]:
    """Name -> bytes of everything that a finished run has come to."""
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
    """Names of what is missing on one side or has other bits."""
    return sorted(
        name
        for name in expected.keys() | found.keys()
        if expected.get(name) != found.get(name)
    )


def _bytes(array):
    array = np.asarray(array)
    return f"{array.dtype} {array.shape} ".encode() + array.tobytes()


def _kill_until_finished(command, folder, recipe, draw):
    """Where the run was killed, in turn; afterwards it is finished."""
    places: list[str] = []
    while len(places) < command.kills:
        place = draw.choice(list(PLACES))
        if place == "problem" and recipe != "ccp":
            place = "step"
        number = draw.randint(1, PLACES[place]) if PLACES[place] else 0
        # A process takes some seconds, most to compile.
        wait = draw.uniform(0, 12) if place == "any" else None
        code = _train(command, folder, recipe, place, number, wait)
        if code != -signal.SIGKILL:
            _require_finished(code, folder, places)
            return places
        places.append(f"{place} {number}" if number else place)
    _require_finished(_train(command, folder, recipe), folder, places)
    return places


def _train(command, folder, recipe, place="any", number=0, wait=None):
    """Trains in a process of its own; returns how that one ended.

    It is forked from one that has imported everything and computed nothing,
    which spares it half of its time.
    """
    os.environ["KERAS_BACKEND"] = command.backend
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(list(IMPORTED))
    process = processes.Process(
        target=train_silently,
        args=(str(folder), recipe, command.seed, place, number),
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
            f"A run that is left alone must end with 0. Received: {code}"
            f"{killed}. It said:\n{found}"
        )


def _keep(command, runs):
    from training.research.campaigns.report import keep_campaign
    from training.research.results.records import Table

    places = Counter(place.split()[0] for run in runs for place in run.places)
    rows = [[place, str(count)] for place, count in sorted(places.items())]
    keep_campaign(
        command.json,
        "kills",
        f"Runs killed at random moments, {command.backend}",
        ABOUT,
        command,
        [
            Table(HEADINGS, rows_of(runs)),
            Table(("killed in", "times"), rows, title="Moments"),
        ],
    )


if __name__ == "__main__":
    main()
