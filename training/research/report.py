"""Tables, records and the command line of whatever measures the project.

A record is a small JSON file, `docs/results/NAME.json`. Pages are made of
records by `python -m training.research.pages`.

| kind | written by | its own keys |
| --- | --- | --- |
| study | `python -m training.research.pages runs/STUDY` | `rows` |
| experiment | `python -m training.research.experiments.NAME --json FILE` | `results` |
| benchmark | `python -m training.research.benchmarks.NAME --json FILE` | `tables` |
| campaign | `python -m training.research.campaigns.NAME --json FILE` | `tables` |
"""

import datetime
import json
import os
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from training.runs.environment import environment
from training.runs.run_directory import write_text

RESEARCH = "training.research"


def markdown_table(
    headings: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    num_left: int | None = None,
) -> str:
    """Returns a Markdown table.

    Args:
        headings: One for each column.
        rows: Cells, as many as headings.
        num_left: Number of left-aligned columns, the others are numbers.
            None: all columns are left-aligned.
    """
    left = len(headings) if num_left is None else num_left
    rules = ["---"] * left + ["---:"] * (len(headings) - left)
    lines = [headings, rules, *rows]
    return "\n".join("| " + " | ".join(map(str, r)) + " |" for r in lines)


def mean_and_deviation(values: Iterable[float]) -> dict[str, Any]:
    """Mean and sample standard deviation of repeated measurements.

    Args:
        values: One number for each seed, fold or repetition.

    Returns:
        Dict of `mean`, `std`, which is None for a single number, and
        `values`.
    """
    numbers = np.asarray(list(values), "float64")
    deviation = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return {
        "mean": float(numbers.mean()),
        "std": deviation,
        "values": numbers.tolist(),
    }


def spread(
    measure: Mapping[str, Any], factor: float = 1.0, digits: int = 4
) -> str:
    """Formats a mean as `0.1234 ± 0.0056`, without `±` for one number.

    Args:
        measure: What `mean_and_deviation` returned.
        factor: 100 for percentages.
        digits: Digits after the point.
    """
    text = f"{factor * measure['mean']:.{digits}f}"
    if measure["std"] is None:
        return text
    return f"{text} ± {factor * measure['std']:.{digits}f}"


@dataclass(frozen=True)
class Table:
    """One table of a record.

    Attributes:
        headings: One for each column.
        rows: Cells as a page shows them.
        num_left: Number of columns with words; the others are numbers.
        title: Subject of the table, where a record has several.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_left: int = 1
    title: str = ""

    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown_table(self.headings, self.rows, num_left=self.num_left)


@dataclass(frozen=True)
class Measurement:
    """Repeated times of one contender.

    Attributes:
        name: Name of the contender.
        seconds: One time for each repetition.
        facts: Further columns by heading, formatted.
    """

    name: str
    seconds: Sequence[float]
    facts: Mapping[str, str] = field(default_factory=dict)


def ratio_table(
    measurements: Sequence[Measurement], title: str = "", first: str = ""
) -> Table:
    """Times as ratios to those of the first contender.

    A ratio compares medians; its spread is the range over the repetitions.

    Args:
        measurements: All others are compared with the first.
        title: What was measured.
        first: Heading of the contenders' names.
    """
    headings = list(dict.fromkeys(h for m in measurements for h in m.facts))
    unit = np.median(measurements[0].seconds)
    rows = []
    for one in measurements:
        ratios = np.array(one.seconds) / unit
        rows.append(
            [
                one.name,
                f"{np.median(one.seconds):.4g}",
                f"{np.median(ratios):.2f}",
                f"{ratios.min():.2f}-{ratios.max():.2f}",
                *(one.facts.get(heading, "") for heading in headings),
            ]
        )
    return Table(
        [first, "seconds", "ratio", "spread", *headings], rows, 1, title
    )


def facts_table(facts: Mapping[str, Any], title: str = "") -> Table:
    """A table with one fact in each line."""
    rows = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        text = f"{value:,}" if isinstance(value, int) else str(value)
        rows.append([name.replace("_", " "), text])
    return Table(("", ""), rows, title=title)


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """Options of every benchmark, campaign and experiment."""

    json: Path | None = None
    """Record to write, `docs/results/NAME.json` for a page."""
    smoke: bool = False
    """Tiny sizes, to check in seconds that everything runs."""

    def small(self) -> "CommandSettings":
        """The settings of a smoke test."""
        return self


Settings = TypeVar("Settings", bound=CommandSettings)


def run_benchmark(
    name: str,
    title: str,
    about: str | None,
    settings: Settings,
    measure: Callable[[Settings], Iterable[Table]],
    *,
    kind: str = "benchmark",
) -> list[Table]:
    """Measures, prints each table as soon as it is complete, writes a record.

    Args:
        name: Module below `training.research`, `"benchmarks.pooling"`.
        title: Title of the page.
        about: The module's docstring, which becomes the page's text.
        settings: The options; those of `small` with `smoke`.
        measure: Yields the tables.
        kind: `"benchmark"` or `"campaign"`.

    Returns:
        The tables.
    """
    command = command_line(name, settings)
    sizes: Any = settings.small() if settings.smoke else settings
    load = os.getloadavg()[0]
    tables = []
    for table in measure(sizes):
        heading = f"{table.title}\n\n" if table.title else ""
        print(f"\n{heading}{table.markdown()}", flush=True)
        tables.append(table)
        if settings.json is not None:
            # After each table: an interrupted command leaves a record.
            record = {
                "kind": kind,
                "title": title,
                "command": command,
                "about": _without_commands(about or ""),
                "settings": asdict(sizes),
                "environment": environment(),
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "device": device_name(),
                "load": load,
                "tables": [vars(one) for one in tables],
            }
            write_record(settings.json, record)
    return tables


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings(CommandSettings):
    """Options of every experiment."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One repetition each."""
    out: Path = Path("runs/experiments")
    """Folder for the record and the picture."""


Experiment = TypeVar("Experiment", bound=ExperimentSettings)


def run_experiment(
    name: str,
    settings: Experiment,
    measure: Callable[[Experiment], dict],
    draw: Callable[[Path, dict], None],
    table: Callable[[dict], str],
) -> dict:
    """Measures, prints a table, writes a record and a picture.

    Args:
        name: The experiment's module.
        settings: Its options; those of `small` with `smoke`.
        measure: Returns the results: numbers, lists and dicts.
        draw: Draws results into a PNG file.
        table: Formats results as a Markdown table.

    Returns:
        The results.
    """
    sizes: Any = settings.small() if settings.smoke else settings
    results = plain(measure(sizes))
    record = {
        "kind": "experiment",
        "experiment": name,
        "command": command_line(f"experiments.{name}", settings),
        "settings": asdict(sizes),
        "environment": environment(),
        "results": results,
    }
    for path in filter(None, (settings.out / f"{name}.json", settings.json)):
        write_record(path, record)
        draw(path.with_suffix(".png"), results)
        print(path)
    print(f"\n{table(results)}")
    return results


def command_line(name: str, settings: Any) -> str:
    """A command with the options that are not at their defaults.

    Args:
        name: Module below `training.research`.
        settings: The command's dataclass. Paths are left out; of a string
            with a path its last part remains.
    """
    words = [f"python -m {RESEARCH}.{name}"]
    for one in fields(settings):
        value = getattr(settings, one.name)
        default = one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        if isinstance(value, Path) or value == default:
            continue
        option = one.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            values = np.ravel(np.array(value, object))
            words += [f"--{option}"]
            words += [shlex.quote(str(_without_folder(v))) for v in values]
    return " ".join(words)


def plain(content: Any) -> Any:
    """Converts arrays, NumPy numbers and paths, at any depth, for JSON."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, np.ndarray | np.generic):
        return plain(content.tolist())
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    return str(content) if isinstance(content, Path) else content


def read_record(path: Path) -> dict[str, Any]:
    """Reads a record.

    Raises:
        ValueError: the file is no record.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict) or "kind" not in record:
        raise ValueError(
            "A record must be a JSON file that a study, an experiment, a "
            f"benchmark or a campaign wrote. Received: {path}."
        )
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record, without folders and the machine's name.

    Each row has a line of its own, so that differences are readable. Numbers
    are rounded to six digits.
    """
    kept = dict(record)
    if "settings" in kept:
        kept["settings"] = {
            name: _without_folder(value)
            for name, value in kept["settings"].items()
            if name not in ("out", "json") and (name != "smoke" or value)
        }
    kept["environment"] = {
        name: value
        for name, value in kept.get("environment", {}).items()
        if name != "platform"
    }
    lines = []
    for key, value in _rounded(plain(kept)).items():
        text = _compact(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join(f"  {_compact(row)}" for row in value)
            text = f"[\n{rows}\n ]"
        lines.append(f"{json.dumps(key)}: {text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "{\n " + ",\n ".join(lines) + "\n}\n")


def _compact(value):
    return json.dumps(value, ensure_ascii=False)


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        # Six decimals would leave few digits of a time in microseconds.
        return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")
    return value


def _without_folder(value):
    if isinstance(value, list | tuple):
        return [_without_folder(one) for one in value]
    is_path = isinstance(value, Path) or (
        isinstance(value, str) and "/" in value
    )
    return Path(value).name if is_path else value


def _without_commands(text):
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(one for one in paragraphs if one[:4] != "    ")


def device_name() -> str:
    """Returns the name of the device that the backend computes on.

    Imports the backend, which takes an accelerator's memory: call it after the
    measurement.
    """
    import keras

    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        if device.platform != "cpu":
            return device.device_kind
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU"):
            details = tf.config.experimental.get_device_details(device)
            return details.get("device_name", device.name)
    return _processor()


def _processor():
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [x.partition(": ")[2] for x in lines if x.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores"
