"""Training killed again and again: `python -m training.campaigns.kills`.

Every run is killed at random moments, gone on with by the same command until
it is finished, and then compared, bit by bit, with a run that was left alone.
"""

import datetime
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

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
    "run",
    "trained with",
    "killed in",
    "kills",
    "resumes",
    "values compared",
    "differences",
)


@dataclass(frozen=True)
class KillsCommand:
    """Kills runs at random moments and compares how they end."""

    runs: int = 10
    """Runs that are killed."""
    kills: int = 3
    """Kills of a run, at most."""
    backend: Literal["tensorflow", "jax"] = "tensorflow"
    """Keras's backend."""
    seed: int = 0
    """Seed of the moments, and of the training."""
    json: Path | None = None
    """File for the record."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        KillsCommand,
        prog="python -m training.campaigns.kills",
        description=__doc__,
        args=arguments,
    )
    if command.runs < 1:
        sys.exit(
            f"error: `runs` must be at least 1. Received: runs={command.runs}."
        )
    rows = run_campaign(command)
    total = ["all", "", "", *(sum(row[i] for row in rows) for i in range(3, 7))]
    shown = [[str(cell) for cell in row] for row in [*rows, total]]
    print(
        f"{len(rows)} runs, {total[3]} kills, {total[4]} resumes, "
        f"{total[5]} values compared, {total[6]} differences"
    )
    if command.json is not None:
        _keep(command, shown)
    if total[6]:
        sys.exit("error: a run that was killed ended differently")


def run_campaign(command: KillsCommand) -> list[list]:
    """Kills all runs; one row of `HEADINGS` each, printed as it comes."""
    from training.campaigns.killed_run import RECIPES

    draw = random.Random(command.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        alone: dict[str, dict] = {}
        for number in range(command.runs):
            recipe = list(RECIPES)[number % len(RECIPES)]
            if recipe not in alone:
                # A run remembers its folder's name: the same one for all.
                whole = Path(folder) / "whole" / recipe
                _require_finished(_train(command, whole, recipe))
                alone[recipe] = outcome(whole)
            killed = Path(folder) / f"killed-{number}" / recipe
            places = _kill_until_finished(command, killed, recipe, draw)
            found = outcome(killed)
            row = [
                number + 1,
                recipe,
                ", ".join(places),
                len(places),
                len(places),
                len(alone[recipe]),
                len(differences(alone[recipe], found)),
            ]
            rows.append(row)
            print(*map(str, row), sep=" | ", flush=True)
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
        # A process takes some seconds after its first line, most to compile.
        wait = draw.uniform(0, 20) if place == "any" else None
        code = _train(command, folder, recipe, place, number, wait)
        if code != -signal.SIGKILL:
            _require_finished(code)
            return places
        places.append(f"{place} {number}" if number else place)
    _require_finished(_train(command, folder, recipe))
    return places


def _train(command, folder, recipe, place="any", number=0, wait=None):
    """Trains in a process of its own; returns how that one ended."""
    options = ["--recipe", recipe, "--seed", str(command.seed)]
    if place != "any":
        options += ["--place", place, "--number", str(number)]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "training.campaigns.killed_run"),
            *(str(folder), *options),
        ],
        cwd=Path(__file__).parents[2],
        env=os.environ
        | {"KERAS_BACKEND": command.backend, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.communicate(timeout=wait)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    return process.returncode


def _require_finished(code):
    if code:
        raise RuntimeError(
            "A run that is left alone must end with 0. Received: "
            f"{code}. Run `python -m training.campaigns.killed_run FOLDER` "
            "to see why."
        )


def _keep(command, rows):
    from training.results.records import keep_table

    now = datetime.datetime.now(datetime.UTC)
    settings = {
        name: value for name, value in vars(command).items() if name != "json"
    }
    options = " ".join(f"--{name} {value}" for name, value in settings.items())
    keep_table(
        command.json,
        "Runs killed at random moments",
        HEADINGS,
        rows,
        command=f"python -m training.campaigns.kills {options}",
        about=" ".join(ABOUT.split()),
        num_left=3,
        settings=settings | {"date": now.date().isoformat()},
    )


if __name__ == "__main__":
    main()
