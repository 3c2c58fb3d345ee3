"""What every experiment does alike: command line, JSON, picture, printing."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from training.research.results.records import for_a_page, plain, write_record
from training.runs.environment import environment


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Options that every experiment has; its own come in a subclass."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """One repetition each."""
    smoke: bool = False
    """Tiny sizes: seconds, to see that everything runs."""
    out: Path = Path("runs/experiments")
    """Folder for the numbers and the picture."""
    json: Path | None = None
    """File that keeps the numbers, `docs/results/NAME.json` for a page; its
    picture is drawn beside it."""

    def small(self) -> "ExperimentSettings":
        """The same experiment with the sizes of a smoke test."""
        return self


Settings = TypeVar("Settings", bound=ExperimentSettings)


def run_experiment(
    name: str,
    settings: Settings,
    measure: Callable[[Settings], dict],
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
    # `small` answers in its own class.
    sizes: Any = settings.small() if settings.smoke else settings
    facts = {
        "kind": "experiment",
        "experiment": name,
        "settings": plain(asdict(sizes)),
        "environment": environment(),
    }
    _print_facts(facts)
    start = time.perf_counter()
    results = plain(measure(sizes))
    seconds = round(time.perf_counter() - start, 1)
    numbers = settings.out / f"{name}.json"
    facts |= {"wall_seconds": seconds, "results": results}
    write_record(numbers, facts)
    if settings.json is not None:
        write_record(settings.json, for_a_page(facts))
        draw(settings.json.with_suffix(".png"), results)
    drawing = settings.out / f"{name}.png"
    draw(drawing, results)
    print(f"\n{table(results)}\n\n{seconds} s; {numbers}, {drawing}")
    return results


def _print_facts(facts):
    versions = facts["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in versions["packages"].items())
    print(f"{facts['experiment']}: python {versions['python']}, {packages}")
    sizes = (f"{k}={v}" for k, v in facts["settings"].items())
    print("; ".join(sizes), flush=True)
