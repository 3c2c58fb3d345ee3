"""Losses beside pytorch-metric-learning.

    python -m training.research.benchmarks.losses --pml-python /path/to/bin/python

A step is the value of a loss and its gradient with respect to embeddings and
proxies. Ours is compiled by XLA, theirs runs eagerly in a process with torch
and pytorch-metric-learning, only with `--pml-python`. The command fails if our
value in float32 differs from theirs in float64 by a relative error above 1e-5,
or a gradient by more than 1e-3 of its length. Ratios compare the fastest
repetitions, which other load disturbs least. Losses with one time are not in
that library; random draws differ. At a batch of 512 it needs gigabytes for
three losses, which stop at 128.
"""

import gc
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

import keras_gsp as gsp
from training.research.report import CommandSettings, Table, run_measurement

SCRIPT = Path(__file__).with_name("pml_contender.py")
# Losses with other arguments than their defaults, beside every loss itself.
VARIANTS: dict[str, dict[str, Any]] = {
    "MultiSimilarityLoss, mined": {"mining_margin": 0.1},
    "TripletLoss, batch hard": {"margin": 0.2, "miner": "batch_hard"},
    "ContrastiveLoss, mined": {
        "negative_margin": 1.0,
        "miner": "multi_similarity",
    },
    "MarginLoss, distance weighted": {"miner": "distance_weighted", "seed": 0},
    "ArcFaceLoss, 2 centers": {},
}
SEVERAL_PROXIES = ("SoftTripleLoss", "ArcFaceLoss, 2 centers")
# Theirs compares all positive pairs with all negative ones, or batch^3
# numbers: gigabytes at a batch of 512.
LARGEST_BATCH = dict.fromkeys(
    ("NTXentLoss", "LiftedStructureLoss", "SmoothAPLoss"), 128
)
# Theirs (2.9) takes the samples of a class for the number of classes.
SQUARE = ("SmoothAPLoss",)
DRAWN = ("MarginLoss, distance weighted",)
HEADINGS = (
    "loss",
    "batch",
    "proxies",
    "ours, ms a step: median (range)",
    "pytorch-metric-learning, ms",
    "theirs / ours, fastest",
    "difference of values",
    "of gradients",
)
VALUE_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3


def exported_losses() -> tuple[str, ...]:
    """Every loss on pairs or proxies that `gsp.losses` exports, and variants.

    A loss is one that can be made without arguments and is no base class.
    """
    kinds = gsp.losses.PairLoss, gsp.losses.ListLoss, gsp.losses.ProxyLoss
    names = [
        name
        for name, kind in vars(gsp.losses).items()
        if isinstance(kind, type)
        and issubclass(kind, kinds)
        and kind not in kinds
    ]
    return (*sorted(names), *VARIANTS)


def build_loss(name: str) -> Any:
    """The loss of a name of `exported_losses`."""
    kind = getattr(gsp.losses, name.partition(",")[0])
    return kind(**VARIANTS.get(name, {}))


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    batch_sizes: tuple[int, ...] = (32, 128, 512)
    """Batches for every loss; 4 samples a class, for smooth_ap as many
    classes as samples of each."""
    num_classes: int = 200
    """Classes that have proxies, at these batch sizes."""
    many_classes: int = 10_000
    """Classes for one more run of each proxy loss, at a batch of 128."""
    embedding_size: int = 128
    repeats: int = 9
    """Timed runs of each case; each lasts about `seconds`."""
    seconds: float = 0.2
    losses: tuple[str, ...] = field(default_factory=exported_losses)
    """Names of losses; by default all that `gsp.losses` exports."""
    pml_python: Path | None = None
    """Interpreter that has torch and pytorch-metric-learning."""

    SMALL = {
        "batch_sizes": (16,),
        "num_classes": 6,
        "many_classes": 8,
        "embedding_size": 8,
        "repeats": 1,
        "seconds": 0.0,
        "losses": ("ContrastiveLoss", "ProxyNCALoss"),
    }


def list_cases(settings: Settings) -> list[dict]:
    """One dict of plain values for each measurement."""
    cases = []
    for loss in settings.losses:
        largest = LARGEST_BATCH.get(loss, max(settings.batch_sizes))
        sizes = [
            (batch_size, settings.num_classes)
            for batch_size in settings.batch_sizes
            if batch_size <= largest
        ]
        is_proxy_loss = isinstance(build_loss(loss), gsp.losses.ProxyLoss)
        if is_proxy_loss:
            sizes.append((128, settings.many_classes))
        for batch_size, num_classes in sizes:
            per_class = 4
            if loss in SQUARE:
                per_class = math.isqrt(batch_size)
                batch_size = per_class**2
            cases.append(
                {
                    "loss": loss,
                    "batch_size": batch_size,
                    "samples_per_class": per_class,
                    "num_classes": num_classes if is_proxy_loss else 0,
                    "proxies_per_class": 2 if loss in SEVERAL_PROXIES else 1,
                    "embedding_size": settings.embedding_size,
                    "repeats": settings.repeats,
                    "seconds": settings.seconds,
                }
            )
    return cases


def write_problem(case: dict, path: Path) -> None:
    """Writes embeddings in loose clusters, their labels, and proxies.

    A common offset brings the embeddings so close to each other that every
    loss has active pairs of both kinds.
    """
    rng = np.random.default_rng(0)
    size = case["embedding_size"]
    labels = np.arange(case["batch_size"]) // case["samples_per_class"]
    if case["num_classes"]:
        labels %= case["num_classes"]
    centers = rng.standard_normal((labels.max() + 1, size))
    noise = 5.0 * rng.standard_normal(size) + 1.5 * rng.standard_normal(
        (len(labels), size)
    )
    shape = (case["num_classes"], case["proxies_per_class"], size)
    proxies = rng.standard_normal(shape)
    proxies[: len(centers)] += centers[: case["num_classes"], None]
    np.savez(
        path,
        labels=labels,
        embeddings=(centers[labels] + noise).astype("float32"),
        proxies=proxies.astype("float32"),
    )


def compiled_step(case: dict[str, Any], problem: Any) -> Any:
    """Returns a function that computes value and gradients."""
    loss = build_loss(case["loss"])
    labels = tf.constant(problem["labels"])
    embeddings = tf.Variable(problem["embeddings"])
    watched = [embeddings]
    proxies = None
    if case["num_classes"]:
        proxies = gsp.layers.ClassProxies(
            case["num_classes"], proxies_per_class=case["proxies_per_class"]
        )
        proxies.build(embeddings.shape)
        proxies.proxies.assign(problem["proxies"])
        watched.append(proxies.proxies.value)

    @tf.function(jit_compile=True)
    def step(labels):
        with tf.GradientTape() as tape:
            output = tf.convert_to_tensor(embeddings)
            if proxies is not None:
                output = proxies(output)
            value = loss(labels, output)
        # Zero where nothing depends on a weight.
        return value, tape.gradient(
            value, watched, unconnected_gradients="zero"
        )

    return lambda: step(labels)


def measured(case: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the value, and the seconds a step of each repetition."""
    with np.load(path) as problem:
        step = compiled_step(case, problem)
    value, found = step()
    np.savez(path.with_suffix(".ours.npz"), *(g.numpy() for g in found))
    steps = max(3, int(case["seconds"] / timed(step, 1)))
    seconds = [timed(step, steps) for _ in range(case["repeats"])]
    return {"value": float(value), "seconds": seconds}


def timed(step: Callable, steps: int) -> float:
    """Seconds a step."""
    start = time.perf_counter()
    for _ in range(steps):
        last, _ = step()
    last.numpy()
    return (time.perf_counter() - start) / steps


def theirs(python: Path, folder: Path, count: int) -> list[dict | None]:
    """Runs the other library: one JSON object a line and case."""
    with subprocess.Popen(
        [str(python), str(SCRIPT), "losses", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = tqdm(process.stdout, desc=SCRIPT.name, total=count)
        found = [
            json.loads(line) for line in lines if line[:4] in ('{"va', "null")
        ]
    if process.returncode != 0:
        sys.exit(f"{SCRIPT.name} failed with status {process.returncode}.")
    return found


def compare(cases: list[dict], settings: Settings) -> list[dict]:
    """Returns what each contender found for each case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps(cases))
        ours = []
        for number, case in enumerate(tqdm(cases, desc="keras_gsp")):
            write_problem(case, folder / f"{number}.npz")
            ours.append(measured(case, folder / f"{number}.npz"))
            # Garbage of one case would slow the next.
            gc.collect()
        others: list[dict | None] = [None] * len(cases)
        if settings.pml_python is not None:
            others = theirs(settings.pml_python, folder, len(cases))
        apart = [gradient_difference(folder, n) for n in range(len(cases))]
    return [
        {"ours": one, "theirs": other, "gradient_difference": gap}
        for one, other, gap in zip(ours, others, apart, strict=True)
    ]


def gradient_difference(folder: Path, number: int) -> float | None:
    """Returns the largest distance of two gradients, as a share of theirs."""
    pair = [folder / f"{number}.{side}.npz" for side in ("ours", "theirs")]
    if not pair[1].exists():
        return None
    with np.load(pair[0]) as ours, np.load(pair[1]) as theirs:
        return max(
            float(np.linalg.norm(ours[name].reshape(one.shape) - one))
            / (float(np.linalg.norm(one)) or 1.0)
            for name, one in theirs.items()
        )


def milliseconds(seconds: list[float]) -> str:
    """Returns the median and the range of repeated times."""
    times = 1e3 * np.array(seconds)
    return f"{np.median(times):.3g} ({times.min():.3g}-{times.max():.3g})"


def row(case: dict, found: dict) -> list[str]:
    """One line of the table."""
    ours, theirs = found["ours"], found["theirs"]
    cells = [
        case["loss"],
        str(case["batch_size"]),
        str(case["num_classes"] * case["proxies_per_class"] or ""),
        milliseconds(ours["seconds"]),
    ]
    if theirs is None:
        return [*cells, "", "", "", ""]
    # Other load changes the fastest repetition least.
    ratio = min(theirs["seconds"]) / min(ours["seconds"])
    apart = [f"{one:.1e}" for one in differences(found)]
    if case["loss"] in DRAWN:
        apart = ["drawn", "drawn"]
    return [*cells, milliseconds(theirs["seconds"]), f"{ratio:.2f}", *apart]


def differences(found: dict) -> tuple[float, float]:
    """How far our value and gradients are from theirs, shares of theirs."""
    ours, theirs = found["ours"]["value"], found["theirs"]["value"]
    value = abs(ours - theirs) / (abs(theirs) or 1.0)
    return value, found["gradient_difference"]


def differs(case: dict, found: dict) -> bool:
    """Whether the two sides compute another loss."""
    if found["theirs"] is None or case["loss"] in DRAWN:
        return False
    value, gradient = differences(found)
    return value > VALUE_TOLERANCE or gradient > GRADIENT_TOLERANCE


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table; fails where values or gradients differ."""
    cases = list_cases(settings)
    found = list(zip(cases, compare(cases, settings), strict=True))
    yield Table(HEADINGS, [row(case, result) for case, result in found])
    differing = [
        f"{case['loss']} at a batch of {case['batch_size']}"
        for case, result in found
        if differs(case, result)
    ]
    if differing:
        raise ValueError(f"Values or gradients differ: {', '.join(differing)}.")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
