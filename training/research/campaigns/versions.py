"""Versions of Python and TensorFlow that pass the library's tests.

    python -m training.research.campaigns.versions --json docs/results/versions.json

Each pair of versions gets a virtual environment, which is deleted afterwards.
Pairs that the record has already are kept as they are.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from training.research.report import (
    CommandSettings,
    Table,
    read_record,
    run_measurement,
)

ROOT = Path(__file__).parents[3]
HEADINGS = "Python", "TensorFlow", "result", "passed", "failed", "skipped", "s"
NEEDED = "jax[cpu]", "pillow", "pytest", "scikit-learn", "tyro"


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Versions and tests."""

    pythons: tuple[str, ...] = ("3.11", "3.12", "3.13", "3.14")
    """Versions of Python; `python3.12` must be a command."""
    tensorflows: tuple[str, ...] = ("2.20", "2.21", "2.22")
    """Versions of TensorFlow, release candidates included."""
    package: str = "tensorflow-cpu"
    """Package of TensorFlow."""
    tests: tuple[str, ...] = (
        *("tests/ops", "tests/losses", "tests/layers/pooling"),
        *("tests/metrics", "tests/data", "tests/retrieval"),
    )
    """Files or folders of tests."""
    minutes: float = 30
    """Limit for the tests of a pair of versions."""


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table with a row for each pair of versions."""
    rows = []
    if settings.json is not None and settings.json.exists():
        rows = read_record(settings.json)["tables"][0]["rows"]
    for python in settings.pythons:
        for tensorflow in settings.tensorflows:
            if not any(row[:2] == [python, tensorflow] for row in rows):
                row = [
                    python,
                    tensorflow,
                    *tested(python, tensorflow, settings),
                ]
                print(*row, sep=" | ", flush=True)
                rows.append(row)
    yield Table(HEADINGS, sorted(rows), 3)


def tested(python: str, tensorflow: str, settings: Settings) -> list[str]:
    """Installs two versions and runs the tests; returns the rest of a row."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        own, record = Path(folder, "bin", "python"), Path(folder, "tests.xml")
        pinned = f"{settings.package}=={tensorflow}.*,>=0.dev0"
        commands: list[list] = [
            [f"python{python}", "-m", "venv", folder],
            [own, "-m", "pip", "install", "-q", "-e", ROOT, pinned, *NEEDED],
            [own, "-m", "pytest", f"--junitxml={record}", *settings.tests],
        ]
        for command in commands:
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    timeout=60 * settings.minutes,
                    capture_output=True,
                    text=True,
                )
            except FileNotFoundError:
                return [f"no command python{python}", *4 * [""]]
            except subprocess.TimeoutExpired:
                return [f"unfinished after {settings.minutes} min", *4 * [""]]
            if done.returncode and not record.exists():
                lines = (done.stdout + done.stderr).strip().splitlines()
                errors = [line for line in lines if "ERROR" in line]
                return [*(errors or lines)[:1], *4 * [""]]
        if done.returncode:
            print(done.stdout)
        counts = ElementTree.parse(record).getroot()[0].attrib
    failed = int(counts["failures"]) + int(counts["errors"])
    skipped = int(counts["skipped"])
    passed = int(counts["tests"]) - failed - skipped
    seconds = round(time.monotonic() - start)
    result = "failed" if failed else "passed"
    return [result, *map(str, (passed, failed, skipped, seconds))]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
