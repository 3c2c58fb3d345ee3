"""Values and step times of every loss, beside pytorch-metric-learning.

    python -m training.benchmarks.losses --pml-python /path/to/bin/python

A step is the value of a loss and its gradient with respect to embeddings and,
where there are any, proxies. Ours is compiled by XLA, theirs runs as that
library runs. Each side is a process of its own, one after the other; the
other interpreter needs torch and pytorch-metric-learning, and without
`--pml-python` it is left out. The same definition of each loss is asked of
both, and the command fails where our value in float32 differs by more than
1e-5 from theirs in float64, as a fraction of it.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

CONTENDERS = Path(__file__).parent / "loss_contenders"
PAIR_LOSSES = (
    "contrastive",
    "cosine_contrastive",
    "triplet",
    "multi_similarity",
    "multi_similarity_mined",
)
PROXY_LOSSES = ("proxy_nca", "proxy_anchor", "soft_triple")
TOLERANCE = 1e-5


@dataclass
class Settings:
    """What to measure."""

    batch_sizes: tuple[int, ...] = (32, 128, 512)
    """Batches for every loss; 4 samples a class."""
    num_classes: int = 200
    """Classes that have proxies, at these batch sizes."""
    many_classes: int = 10_000
    """Classes for one more run of each proxy loss, at a batch of 128."""
    embedding_size: int = 128
    repeats: int = 9
    """Timed runs of each case; each lasts about `seconds`."""
    seconds: float = 0.2
    losses: tuple[str, ...] = PAIR_LOSSES + PROXY_LOSSES
    """Which losses."""
    pml_python: Path | None = None
    """Interpreter that has torch and pytorch-metric-learning."""


def list_cases(settings: Settings) -> list[dict]:
    """Returns one dict of plain values for each measurement."""
    cases = []
    for loss in settings.losses:
        sizes = [(b, settings.num_classes) for b in settings.batch_sizes]
        if loss in PROXY_LOSSES:
            sizes.append((128, settings.many_classes))
        for batch_size, num_classes in sizes:
            is_proxy_loss = loss in PROXY_LOSSES
            cases.append(
                {
                    "loss": loss,
                    "batch_size": batch_size,
                    "num_classes": num_classes if is_proxy_loss else 0,
                    "proxies_per_class": 2 if loss == "soft_triple" else 1,
                    "embedding_size": settings.embedding_size,
                    "repeats": settings.repeats,
                    "seconds": settings.seconds,
                }
            )
    return cases


def write_problem(case: dict, path: Path) -> None:
    """Writes embeddings in loose clusters, their labels, and proxies.

    What all embeddings have in common brings them so near to each other that
    every loss has active pairs of both kinds.
    """
    rng = np.random.default_rng(0)
    size = case["embedding_size"]
    labels = np.arange(case["batch_size"]) // 4
    if case["num_classes"]:
        labels %= case["num_classes"]
    centres = rng.standard_normal((labels.max() + 1, size))
    noise = 5.0 * rng.standard_normal(size) + 1.5 * rng.standard_normal(
        (len(labels), size)
    )
    shape = (case["num_classes"], case["proxies_per_class"], size)
    proxies = rng.standard_normal(shape)
    proxies[: len(centres)] += centres[: case["num_classes"], None]
    np.savez(
        path,
        labels=labels,
        embeddings=(centres[labels] + noise).astype("float32"),
        proxies=proxies.astype("float32"),
    )


def run(python: str | Path, script: str, folder: Path, count: int):
    """Returns what a contender prints: one JSON object a line and case."""
    with subprocess.Popen(
        [str(python), str(CONTENDERS / script), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = tqdm(process.stdout, desc=script, total=count)
        found = [json.loads(line) for line in lines if line.startswith("{")]
    if process.returncode != 0:
        sys.exit(f"{script} failed with exit status {process.returncode}.")
    return found


def measure(cases: list[dict], settings: Settings) -> list[dict]:
    """Returns what each contender found for each case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps(cases))
        for number, case in enumerate(cases):
            write_problem(case, folder / f"{number}.npz")
        count = len(cases)
        ours = run(sys.executable, "gsp_losses.py", folder, count)
        theirs = [None] * count
        if settings.pml_python is not None:
            theirs = run(settings.pml_python, "pml_losses.py", folder, count)
    return [
        {"ours": one, "theirs": other}
        for one, other in zip(ours, theirs, strict=True)
    ]


def milliseconds(seconds: list[float]) -> str:
    """Returns the median and the range of repeated times."""
    times = 1e3 * np.array(seconds)
    return f"{np.median(times):.3g} ({times.min():.3g}-{times.max():.3g})"


def row(case: dict, found: dict) -> list[str]:
    """Returns one line of the table."""
    ours, theirs = found["ours"], found["theirs"]
    cells = [
        case["loss"],
        str(case["batch_size"]),
        str(case["num_classes"] * case["proxies_per_class"] or ""),
        milliseconds(ours["seconds"]),
    ]
    if theirs is None:
        return [*cells, "", "", ""]
    ratio = np.median(theirs["seconds"]) / np.median(ours["seconds"])
    return [
        *cells,
        milliseconds(theirs["seconds"]),
        f"{ratio:.2f}",
        f"{relative_difference(found):.1e}",
    ]


def relative_difference(found: dict) -> float:
    """Returns how far our value is from theirs, as a fraction of theirs."""
    ours, theirs = found["ours"]["value"], found["theirs"]["value"]
    return abs(ours - theirs) / (abs(theirs) or 1.0)


def main() -> None:
    """Prints one Markdown table; fails where values differ."""
    settings = tyro.cli(Settings, description=__doc__)
    rows = [
        [
            "loss",
            "batch",
            "proxies",
            "ours, ms a step: median (range)",
            "pytorch-metric-learning, ms",
            "theirs / ours",
            "difference of values",
        ]
    ]
    rows.append(["---"] * len(rows[0]))
    wrong = []
    cases = list_cases(settings)
    for case, found in zip(cases, measure(cases, settings), strict=True):
        rows.append(row(case, found))
        if found["theirs"] and relative_difference(found) > TOLERANCE:
            wrong.append(f"{case['loss']} at a batch of {case['batch_size']}")
    print("\n".join("| " + " | ".join(cells) + " |" for cells in rows))
    if wrong:
        sys.exit(f"Values differ by more than {TOLERANCE}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
