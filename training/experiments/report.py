"""What every experiment does alike: command line, JSON, picture, printing."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from training.runs.environment import environment
from training.runs.run_directory import write_json


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Options that every experiment has; its own come in a subclass."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One repetition each."""
    smoke: bool = False
    """Tiny sizes: seconds, to see that everything runs."""
    out: Path = Path("runs/experiments")
    """Folder for the numbers and the picture."""

    def small(self) -> "ExperimentSettings":
        """The same experiment with the sizes of a smoke test."""
        return self


def run_experiment(
    name: str,
    settings: ExperimentSettings,
    measure: Callable[[ExperimentSettings], dict],
    draw: Callable[[Path, dict], None],
    table: Callable[[dict], str],
) -> dict:
    """Measures, prints a table, writes NAME.json and NAME.png.

    Args:
        name: The experiment's name.
        settings: Its options; those of `small` with `smoke`.
        measure: Returns the results, made of numbers, lists and dicts only,
            the same for the same settings but for times.
        draw: Draws results into a PNG file.
        table: Formats results as a Markdown table.

    Returns:
        The results.
    """
    if settings.smoke:
        settings = settings.small()
    facts = {
        "experiment": name,
        "settings": plain(asdict(settings)),
        "environment": environment(),
    }
    _print_facts(facts)
    start = time.perf_counter()
    results = plain(measure(settings))
    seconds = round(time.perf_counter() - start, 1)
    settings.out.mkdir(parents=True, exist_ok=True)
    numbers = settings.out / f"{name}.json"
    facts |= {"wall_seconds": seconds, "results": results}
    write_json(numbers, facts)
    drawing = settings.out / f"{name}.png"
    draw(drawing, results)
    print(f"\n{table(results)}\n\n{seconds} s; {numbers}, {drawing}")
    return results


def mean_and_spread(values: Sequence[float]) -> dict:
    """Mean and standard deviation of one number per seed, and the numbers.

    The deviation divides by count - 1; it is 0 for a single seed.
    """
    values = np.asarray(values, "float64")
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return {"mean": values.mean(), "std": spread, "values": values}


def cell(numbers: Mapping, digits: int = 3) -> str:
    """Formats what `mean_and_spread` returns as `0.123 ± 0.004`."""
    return f"{numbers['mean']:.{digits}f} ± {numbers['std']:.{digits}f}"


def markdown_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """Returns a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(str, r)) + " |" for r in lines)


def plain(content):
    """Turns arrays, NumPy numbers and paths, at any depth, into JSON's own."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, np.ndarray | np.generic):
        return plain(content.tolist())
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    if isinstance(content, Path):
        return str(content)
    return content


def _print_facts(facts):
    versions = facts["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in versions["packages"].items())
    print(f"{facts['experiment']}: python {versions['python']}, {packages}")
    sizes = (f"{k}={v}" for k, v in facts["settings"].items())
    print("; ".join(sizes), flush=True)
