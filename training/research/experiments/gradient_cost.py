"""What it costs to differentiate the transport problem, and how exact it is.

    python -m training.research.experiments.gradient_cost

Three ways to the same gradient: `gsp.ops.partial_transport`, which solves to
rounding error and differentiates in closed form; the paper's iteration with
the paper's closed form at its last iterate; and autodiff through that
iteration. Time and peak memory of forward and backward pass against the
number of rounds, and the error of the gradient against float64. Thesis,
section 5.3.4.4.

Times need a machine at rest. Memory is what TensorFlow's allocator counts; on
a CPU only the one that oneDNN brings does.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from keras import ops

import keras_gsp as gsp
from training.pictures.palette import BLACK, BLUE, VERMILION, picture
from training.research.experiments.paper_iteration import (
    iterated_transport,
    iterated_transport_in_closed_form,
)
from training.research.experiments.report import (
    ExperimentSettings,
    run_experiment,
)
from training.research.results.markdown import (
    markdown_table,
    mean_and_deviation,
    spread,
)

OURS, CLOSED, AUTODIFF = (
    "keras_gsp, closed form",
    "paper's iteration, closed form",
    "paper's iteration, autodiff",
)
LOOKS = {OURS: (BLUE, "-"), CLOSED: (BLACK, "--"), AUTODIFF: (VERMILION, ":")}
PROBLEMS = ((0.3, 5.0), (0.9, 20.0))
"""Ratio and inverse temperature: the paper's, and a slowly converging one."""


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Sizes of the timed problem, and of the one whose gradient is checked."""

    rounds: tuple[int, ...] = (5, 10, 25, 50, 100, 200)
    """Rounds of the paper's iteration."""
    batch: int = 32
    num_features: int = 3136
    """Features of an image: 56 x 56."""
    num_prototypes: int = 16
    repeats: int = 5
    """Timed runs for each seed; the median counts."""

    def small(self) -> "Settings":
        """One seed, small maps, two numbers of rounds."""
        return replace(
            self,
            seeds=(0,),
            rounds=(3,),
            batch=2,
            num_features=25,
            num_prototypes=4,
            repeats=2,
        )


def draw_problem(settings: Settings, seed: int) -> tuple[Any, Any]:
    """Costs of clustered features, and what is pulled from above.

    Returns:
        float64 costs (batch, num_prototypes, num_features) in [0, 2], and
        the gradient with respect to residual and plan, joined.
    """
    rng = np.random.default_rng(seed)
    batch, count = settings.batch, settings.num_features
    prototypes = rng.normal(size=(settings.num_prototypes, 16))
    nearest = rng.integers(settings.num_prototypes, size=(batch, count))
    features = prototypes[nearest] + rng.normal(size=(batch, count, 16))
    features /= np.linalg.norm(features, axis=-1, keepdims=True)
    prototypes /= np.linalg.norm(prototypes, axis=-1, keepdims=True)
    products = prototypes @ np.swapaxes(features, -1, -2)
    costs = np.sqrt(np.maximum(2.0 - 2.0 * products, 0.0))
    rows = 1 + settings.num_prototypes
    return costs, rng.normal(size=(batch, rows, count))


def transport(
    method: str, num_rounds: int, ratio: float, temperature: float
) -> Any:
    """Returns costs -> residual and plan, joined, of one method."""
    options = {"transport_ratio": ratio, "inverse_temperature": temperature}

    def joined(solve, costs):
        residual, plan = solve(costs, **options)
        return ops.concatenate([residual[..., None, :], plan], axis=-2)

    match method:
        case "keras_gsp, closed form":
            solve = partial(gsp.ops.partial_transport, cost_bound=2.0)
            return partial(joined, solve)
        case "paper's iteration, autodiff":
            solve = partial(iterated_transport, num_rounds=num_rounds)
            return partial(joined, solve)
        case "paper's iteration, closed form":
            return partial(
                iterated_transport_in_closed_form,
                num_rounds=num_rounds,
                **options,
            )


def gradient_function(solve: Any) -> Any:
    """Returns (costs, pull) -> outputs and gradient, one TensorFlow graph."""
    import tensorflow as tf

    @tf.function
    def outputs_and_gradient(costs, pull):
        with tf.GradientTape() as tape:
            tape.watch(costs)
            outputs = solve(costs)
        return outputs, tape.gradient(outputs, costs, output_gradients=pull)

    return outputs_and_gradient


def measure(settings: Settings) -> dict:
    """Times every method, then compares gradients with float64."""
    contenders = [(OURS, 0)]
    contenders += [(CLOSED, rounds) for rounds in settings.rounds]
    contenders += [(AUTODIFF, rounds) for rounds in settings.rounds]
    rows = []
    images = {p: exact_gradients(settings, p) for p in PROBLEMS}
    for method, rounds in contenders:
        row = {"method": method, "rounds": rounds}
        row |= _cost(settings, method, rounds)
        for problem in PROBLEMS:
            solve = transport(method, rounds, *problem)
            key = "error {} {}".format(*problem)
            row[key] = mean_and_deviation(_errors(solve, images[problem]))
        rows.append(row)
    return {"rows": rows}


def exact_gradients(settings: Settings, problem: Any) -> list:
    """Costs, pull and the gradient in float64, for an image of each seed."""
    function = gradient_function(transport(OURS, 0, *problem))
    images = []
    for seed in settings.seeds:
        image = [array[:1] for array in draw_problem(settings, seed)]
        tensors = map(ops.convert_to_tensor, image)
        images.append((*image, np.asarray(function(*tensors)[1])))
    return images


def _cost(settings, method, rounds):
    """Milliseconds and megabytes of one forward and backward pass."""
    function = gradient_function(transport(method, rounds, *PROBLEMS[0]))
    milliseconds, megabytes = [], []
    for seed in settings.seeds:
        problem = [
            ops.convert_to_tensor(array.astype("float32"))
            for array in draw_problem(settings, seed)
        ]
        function(*problem)
        megabytes.append(_peak_growth(lambda p=problem: function(*p)))
        times = []
        for _ in range(settings.repeats):
            start = time.perf_counter()
            np.asarray(function(*problem)[1])
            times.append(1e3 * (time.perf_counter() - start))
        milliseconds.append(np.median(times))
    return {
        "milliseconds": mean_and_deviation(milliseconds),
        "megabytes": mean_and_deviation(megabytes),
    }


def _errors(solve, images):
    """Largest errors of the gradient, relative to its largest entry."""
    function = gradient_function(solve)
    errors = []
    for costs, pull, exact in images:
        single = (array.astype("float32") for array in (costs, pull))
        found = function(*map(ops.convert_to_tensor, single))[1]
        error = np.abs(np.asarray(found) - exact).max()
        errors.append(error / np.abs(exact).max())
    return errors


def _peak_growth(run):
    """Megabytes of tensors at the peak of a run, beyond those before it.

    TensorFlow's own count, because its allocator keeps what it has freed;
    NaN where the allocator does not count.
    """
    import tensorflow as tf

    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    device = "GPU:0" if has_gpu else "CPU:0"
    try:
        tf.config.experimental.reset_memory_stats(device)
        before = tf.config.experimental.get_memory_info(device)["current"]
    except ValueError:
        return float("nan")
    run()
    peak = tf.config.experimental.get_memory_info(device)["peak"]
    # Without oneDNN nothing is counted on a CPU.
    return (peak - before) / 2**20 if peak else float("nan")


def draw(path: Path, results: dict) -> None:
    """Draws time, memory and error against the number of rounds."""
    ratio, temperature = PROBLEMS[1]
    panels = (
        ("milliseconds", "forward + backward, ms"),
        ("megabytes", "peak memory, MB"),
        (f"error {PROBLEMS[0][0]} {PROBLEMS[0][1]}", "μ = 0.3, ε = 5"),
        (f"error {ratio} {temperature}", f"μ = {ratio}, ε = {temperature:g}"),
    )
    with picture(path, 2, 2, figsize=(11, 8.5)) as axes:
        for axis, (key, label) in zip(axes.flat, panels, strict=True):
            for method, (color, style) in LOOKS.items():
                _draw_curve(axis, results["rows"], method, key, color, style)
            axis.set_xlabel("rounds of the paper's iteration")
            if key.startswith("error"):
                axis.set_yscale("log")
                axis.set_title(label)
                label = "relative error of gradient"
            else:
                axis.set_ylim(bottom=0.0)
            axis.set_ylabel(label)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        axes[0, 0].figure.legend(
            handles, labels, loc="outside lower center", ncols=2
        )


def _draw_curve(axis, rows, method, key, color, style):
    own = [row for row in rows if row["method"] == method]
    means = [row[key]["mean"] for row in own]
    if method == OURS:
        axis.axhline(means[0], color=color, ls=style, label=method)
        return
    rounds = [row["rounds"] for row in own]
    deviations = [(row[key]["std"] or 0.0) for row in own]
    axis.errorbar(
        rounds,
        means,
        deviations,
        color=color,
        ls=style,
        marker="o",
        label=method,
    )


def table(results: dict) -> str:
    """One row for each method and number of rounds."""
    rows = []
    for row in results["rows"]:
        errors = [
            f"{row[key]['mean']:.1e}" for key in row if key.startswith("error")
        ]
        costs = [
            spread(row[key], digits=1) for key in ("milliseconds", "megabytes")
        ]
        rows.append([row["method"], row["rounds"] or "-", *costs, *errors])
    errors = [f"error, ratio {r}, ε {t:g}" for r, t in PROBLEMS]
    return markdown_table(["", "rounds", "ms", "peak MB", *errors], rows)


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("gradient_cost", settings, measure, draw, table)


if __name__ == "__main__":
    main()
