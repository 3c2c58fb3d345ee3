"""Tables, records and the command line of whatever measures the project.

A record is a small JSON file, `docs/results/NAME.json`, of a study (`rows`), a
benchmark (`tables`) or an experiment (`tables` and `results`).
"""

import contextlib
import datetime
import json
import multiprocessing
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from training.runs.command_line import run_command
from training.runs.run_directory import environment, write_text

# What every record has.
FACTS = {"kind", "title", "about", "command", "environment"}


def over_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict]:
    """Each number of several runs: `mean`, `std` (None for one run), `values`."""
    measures = {}
    for name in runs[0]:
        values = [float(run[name]) for run in runs]
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        mean = float(np.mean(values))
        measures[name] = {"mean": mean, "std": deviation, "values": values}
    return measures


def spread(
    measure: Mapping[str, Any], factor: float = 1.0, digits: int = 4
) -> str:
    """Formats one of `over_runs` as `0.1234 ± 0.0056`; `factor`: 100 for %."""
    text = f"{factor * measure['mean']:.{digits}f}"
    if measure["std"] is None:
        return text
    return f"{text} ± {factor * measure['std']:.{digits}f}"


def gain_text(gain: Mapping[str, Any], digits: int = 1) -> str:
    """Formats a difference in points, `+1.2 [+0.5, +2.0]`.

    Without an interval where the record has none.
    """
    difference, *ends = (
        f"{100 * gain[key]:+.{digits}f}"
        for key in ("difference", "low", "high")
        if gain.get(key) is not None
    )
    return f"{difference} [{', '.join(ends)}]" if ends else difference


@dataclass(frozen=True)
class Table:
    """One table of a record, cells as a page shows them."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    num_left: int = 1
    """Number of columns with words; the others are numbers."""
    title: str = ""

    def markdown(self) -> str:
        """The table in Markdown."""
        rules = ["---"] * self.num_left
        rules += ["---:"] * (len(self.headings) - self.num_left)
        lines = [self.headings, rules, *self.rows]
        return "\n".join("| " + " | ".join(map(str, r)) + " |" for r in lines)


def ratio_table(
    measured: Mapping[str, tuple[Sequence[float], Mapping[str, str]]],
    title: str = "",
    first: str = "",
) -> Table:
    """Times as ratios to those of the first contender.

    `measured`: name -> repeated seconds, and further columns by heading. A
    ratio compares medians; its spread is the range over the repetitions.
    `first` is the heading of the names.
    """
    headings = [*dict.fromkeys(n for _, f in measured.values() for n in f)]
    unit = np.median(next(iter(measured.values()))[0])
    rows = []
    for name, (seconds, facts) in measured.items():
        low, middle, high = np.quantile(seconds, (0.0, 0.5, 1.0)) / unit
        times = f"{np.median(seconds):.4g}", f"{middle:.2f}"
        cells = [facts.get(heading, "") for heading in headings]
        rows.append([name, *times, f"{low:.2f}-{high:.2f}", *cells])
    return Table(
        [first, "seconds", "ratio", "spread", *headings], rows, 1, title
    )


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """Options of every benchmark and experiment."""

    json: Path | None = None
    """Record to write, `docs/results/NAME.json` for a page."""
    smoke: bool = False
    """Tiny sizes, to check in seconds that everything runs."""

    SMALL: ClassVar[Mapping[str, Any]] = {}
    """What the settings of a smoke test change."""


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings(CommandSettings):
    """Options of every experiment."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One repetition each."""


def run_measurement(module: Any, arguments: list[str] | None = None) -> None:
    """Runs the command of a module: measures, prints tables, writes a record.

    The module has `Settings`, the options, and `measure`, which yields tables;
    or returns results (numbers, lists and dicts) that `tables` formats. Its
    docstring is a title, then the page's text. Without `--json` the record is in `runs/experiments` or
    `benchmarks`. It is written after each table: an interrupted command leaves
    one.
    """
    # `benchmarks.pooling`, also of the module that Python runs.
    name = module.__spec__.name.removeprefix("training.research.")
    about = module.__doc__
    title, *paragraphs = about.rstrip().split("\n\n")

    def run(settings):
        if settings.smoke:
            settings = replace(settings, **settings.SMALL)
        words = sys.argv[1:] if arguments is None else arguments
        record = {
            "kind": name.partition("s.")[0],
            "title": title.rstrip("."),
            "about": "\n\n".join(p for p in paragraphs if p[:4] != "    "),
            "settings": asdict(settings),
            "environment": environment(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "load": os.getloadavg()[0],
            "command": command_line(name, words),
        }
        path = settings.json or Path("runs", f"{name.replace('.', '/')}.json")
        tables = module.measure(settings)
        if hasattr(module, "tables"):
            record["results"] = tables
            tables = module.tables(tables)
        record["tables"] = []
        for table in tables:
            heading = f"{table.title}\n\n" if table.title else ""
            print(f"\n{heading}{table.markdown()}", flush=True)
            record["tables"].append(vars(table))
            write_record(path, record | {"device": device_name()})
        print(path)

    options = f"research.{name}", about, module.Settings
    run_command(*options, run, arguments)


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a new process, whose peak of memory is its own.

    A process that is killed ends in a `BrokenProcessPool`.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def command_line(name: str, words: Iterable[str]) -> str:
    """A command as it was given, without the place of its record.

    Of a path its last part remains.
    """
    command, rest = ["python", "-m", f"training.research.{name}"], iter(words)
    for word in rest:
        if word == "--json":
            next(rest, None)
        elif not word.startswith("--json="):
            command.append(_without_folder(word))
    return shlex.join(command)


def read_record(path: Path) -> dict[str, Any]:
    """Reads a record; `ValueError` for a file that is none."""
    with contextlib.suppress(ValueError):
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and record.keys() >= FACTS:
            return record
    raise ValueError(
        "A record must be a JSON file that a study, an experiment or a "
        f"benchmark wrote. Received: {path}."
    )


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record, without folders and the machine's name.

    Each row has a line of its own, so that differences are readable. Numbers
    are rounded to six digits.
    """
    written = {**record, "environment": dict(record.get("environment", {}))}
    written["environment"].pop("platform", None)
    if "settings" in written:
        written["settings"] = {
            name: _without_folder(value)
            for name, value in written["settings"].items()
            if name not in ("out", "json") and (name != "smoke" or value)
        }
    compact = partial(json.dumps, ensure_ascii=False)
    lines = []
    for key, value in _plain(written).items():
        text = compact(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join(f"  {compact(row)}" for row in value)
            text = f"[\n{rows}\n ]"
        lines.append(f"{json.dumps(key)}: {text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "{\n " + ",\n ".join(lines) + "\n}\n")


def _plain(value):
    """Arrays, NumPy numbers and paths at any depth for JSON, rounded."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        # Six decimals would leave few digits of a time in microseconds.
        return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")
    return str(value) if isinstance(value, Path) else value


def _without_folder(value):
    if isinstance(value, list | tuple):
        return [_without_folder(one) for one in value]
    is_path = isinstance(value, str | Path) and "/" in str(value)
    return Path(value).name if is_path else value


def device_name() -> str:
    """The device that the backend computes on.

    Imports the backend, which takes an accelerator's memory: call it after the
    measurement.
    """
    import keras

    match keras.backend.backend():
        case "jax":
            import jax

            device = jax.devices()[0]
            if device.platform != "cpu":
                return device.device_kind
        case "torch":
            import torch

            if torch.cuda.is_available():
                return torch.cuda.get_device_name()
        case _:
            import tensorflow as tf

            for device in tf.config.list_physical_devices("GPU"):
                details = tf.config.experimental.get_device_details(device)
                return details.get("device_name", device.name)
    return environment()["processor"]
