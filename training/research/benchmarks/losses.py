"""Losses beside pytorch-metric-learning.

    python -m training.research.benchmarks.losses

A step is the value of a loss and its gradient with respect to embeddings and
proxies. Ours is compiled by XLA (not on PyTorch); theirs runs eagerly on the same
device, where torch and pytorch-metric-learning are installed. The command fails
if our value in float32 differs from theirs in float64 by a relative error above
1e-5, or a gradient by more than 1e-3 of its length. Ratios compare the fastest repetitions, which other
load disturbs least. Losses with one time are not in that library. At a batch of 512
it needs gigabytes for three losses, which stop at 128.
"""

import gc
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp._labels import as_host_array
from keras_gsp.losses.proxy_similarity import ProxyLoss
from training.recipes.choices import PAIR_LOSSES, PROXY_LOSSES
from training.research.benchmarks.step_share import (
    Step,
    gradient_step,
    in_turns,
)
from training.research.report import CommandSettings, Table, run_measurement

# Losses with other arguments than their defaults, beside every loss itself.
VARIANTS: dict[str, dict[str, Any]] = {
    "MultiSimilarityLoss, mined": {"mining_margin": 0.1},
    "TripletLoss, batch hard": {"margin": 0.2, "miner": "batch_hard"},
    "ContrastiveLoss, mined": {"negative_margin": 1.0}
    | {"miner": "multi_similarity"},
    "ArcFaceLoss, 2 centers": {},
}
SEVERAL_PROXIES = ("SoftTripleLoss", "ArcFaceLoss, 2 centers")
# Theirs compares all positive pairs with all negative ones, or batch^3
# numbers: gigabytes at a batch of 512.
LARGEST_BATCH = dict.fromkeys(("NTXentLoss", "SmoothAPLoss"), 128)
# Theirs (2.9) takes the samples of a class for the number of classes.
SQUARE = ("SmoothAPLoss",)
HEADINGS = (
    *("loss", "batch", "proxies", "ours, ms a step: median (range)"),
    *("pytorch-metric-learning, ms", "theirs / ours, fastest"),
    *("difference of values", "of gradients"),
)
HAS_THEIRS = importlib.util.find_spec("pytorch_metric_learning") is not None
VALUE_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3


def _cosine_contrastive(pml):
    """C1: hinges on cosines, their sum divided by the anchors."""
    loss = pml.losses.ContrastiveLoss(
        pos_margin=1.0 - 1e-5,
        neg_margin=0.5,
        distance=pml.distances.CosineSimilarity(),
        reducer=pml.reducers.SumReducer(),
    )
    return lambda embeddings, labels: loss(embeddings, labels) / len(labels)


def _mined(loss, miner):
    return lambda rows, labels: loss(rows, labels, miner(rows, labels))


# Our name -> the same loss of theirs, of its modules and, for a loss with
# proxies, `num_classes` and `embedding_size`.
THEIRS: dict[str, Callable[..., Any]] = {
    "ContrastiveLoss": lambda pml: pml.losses.ContrastiveLoss(0.0, 0.5),
    "CosineContrastiveLoss": _cosine_contrastive,
    "TripletLoss": lambda pml: pml.losses.TripletMarginLoss(0.05),
    "MultiSimilarityLoss": lambda pml: pml.losses.MultiSimilarityLoss(
        alpha=2.0, beta=40.0, base=0.5
    ),
    "MultiSimilarityLoss, mined": lambda pml: _mined(
        pml.losses.MultiSimilarityLoss(alpha=2.0, beta=40.0, base=0.5),
        pml.miners.MultiSimilarityMiner(epsilon=0.1),
    ),
    # Softmax of cosine / 0.11 is softmax of -distance^2 / 0.22.
    "ProxyNCALoss": lambda pml, **sizes: pml.losses.ProxyNCALoss(
        **sizes, softmax_scale=1 / 0.22
    ),
    "ProxyAnchorLoss": lambda pml, **sizes: pml.losses.ProxyAnchorLoss(
        **sizes, margin=0.1, alpha=32
    ),
    "SoftTripleLoss": lambda pml, **sizes: pml.losses.SoftTripleLoss(
        **sizes, centers_per_class=2, la=20, gamma=0.1, margin=0.01
    ),
    "ArcFaceLoss": lambda pml, **sizes: pml.losses.ArcFaceLoss(
        **sizes, margin=np.degrees(0.5), scale=64
    ),
    "ArcFaceLoss, 2 centers": lambda pml, **sizes: (
        pml.losses.SubCenterArcFaceLoss(
            **sizes, margin=np.degrees(0.5), scale=64, sub_centers=2
        )
    ),
    "CosFaceLoss": lambda pml, **sizes: pml.losses.CosFaceLoss(
        **sizes, margin=0.35, scale=64
    ),
    # Theirs normalizes only with this distance.
    "NormalizedSoftmaxLoss": lambda pml, **sizes: (
        pml.losses.NormalizedSoftmaxLoss(
            **sizes, temperature=0.05, distance=pml.distances.CosineSimilarity()
        )
    ),
    "TripletLoss, batch hard": lambda pml: _mined(
        pml.losses.TripletMarginLoss(0.2), pml.miners.BatchHardMiner()
    ),
    "ContrastiveLoss, mined": lambda pml: _mined(
        pml.losses.ContrastiveLoss(0.0, 1.0),
        pml.miners.MultiSimilarityMiner(epsilon=0.1),
    ),
    "MarginLoss": lambda pml: pml.losses.MarginLoss(margin=0.2, beta=1.2),
    "SupConLoss": lambda pml: pml.losses.SupConLoss(temperature=0.1),
    "NTXentLoss": lambda pml: pml.losses.NTXentLoss(temperature=0.1),
    "CircleLoss": lambda pml: pml.losses.CircleLoss(m=0.4, gamma=80),
    "SmoothAPLoss": lambda pml: pml.losses.SmoothAPLoss(temperature=0.01),
}


# Every loss on pairs or proxies that `gsp.losses` exports, and variants.
NAMES = (*sorted((PAIR_LOSSES | PROXY_LOSSES).values()), *VARIANTS)


def build_loss(name: str) -> Any:
    """The loss of one of `NAMES`."""
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
    losses: tuple[str, ...] = NAMES
    """Names of losses; by default all that `gsp.losses` exports."""

    SMALL = {
        **{"batch_sizes": (16,), "num_classes": 6, "many_classes": 8},
        **{"embedding_size": 8, "repeats": 1, "seconds": 0.0},
        "losses": ("ContrastiveLoss", "ProxyNCALoss"),
    }


def list_cases(settings: Settings) -> list[tuple[str, int, int]]:
    """(loss, batch size, classes with proxies) of each measurement."""
    cases = []
    for loss in settings.losses:
        largest = LARGEST_BATCH.get(loss, math.inf)
        sizes = [one for one in settings.batch_sizes if one <= largest]
        if isinstance(build_loss(loss), ProxyLoss):
            cases += [(loss, size, settings.num_classes) for size in sizes]
            cases.append((loss, 128, settings.many_classes))
        else:
            cases += [(loss, size, 0) for size in sizes]
    return cases


def problem_of(
    loss: str, batch_size: int, num_classes: int, size: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Labels; embeddings in loose clusters and, for a proxy loss, proxies.

    A common offset brings the embeddings so close to each other that every
    loss has active pairs of both kinds.
    """
    rng = np.random.default_rng(0)
    per_class = math.isqrt(batch_size) if loss in SQUARE else 4
    count = per_class**2 if loss in SQUARE else batch_size
    labels = np.arange(count) // per_class
    if num_classes:
        labels %= num_classes
    centers = rng.standard_normal((labels.max() + 1, size))
    noise = 5.0 * rng.standard_normal(size) + 1.5 * rng.standard_normal(
        (count, size)
    )
    arrays = [centers[labels] + noise]
    if num_classes:
        per_class = 2 if loss in SEVERAL_PROXIES else 1
        proxies = rng.standard_normal((num_classes, per_class, size))
        proxies[: len(centers)] += centers[:num_classes, None]
        arrays.append(proxies)
    return labels, [one.astype("float32") for one in arrays]


def our_step(loss: str, labels: Any, arrays: list) -> Step:
    """A function that computes value and gradients."""
    compute, proxies, variables = build_loss(loss), ops.convert_to_tensor, []
    if len(arrays) > 1:
        num_classes, per_class, _ = arrays[1].shape
        proxies = gsp.layers.ClassProxies(
            num_classes, proxies_per_class=per_class
        )
        proxies.build(arrays[0].shape)
        proxies.proxies.assign(arrays[1])
        variables.append(proxies.proxies)
    step, _ = gradient_step(
        lambda rows, labels: compute(labels, proxies(rows)),
        arrays[:1],
        variables,
        constants=[labels],
    )
    return step


def their_step(
    loss: str, labels: Any, arrays: list, dtype: str = "float32"
) -> Callable[[], Any]:
    """The same in the other library, proxies as rows."""
    torch: Any = importlib.import_module("torch")
    pml = SimpleNamespace()
    for name in ("distances", "losses", "miners", "reducers"):
        module = importlib.import_module(f"pytorch_metric_learning.{name}")
        setattr(pml, name, module)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, *proxies = (
        torch.tensor(one.astype(dtype), device=device) for one in arrays
    )
    labels = torch.tensor(labels, device=device)
    watched = [rows.requires_grad_()]
    is_columns = False
    if proxies:
        num_classes, _, size = arrays[1].shape
        compute = THEIRS[loss](
            pml, num_classes=num_classes, embedding_size=size
        )
        (weights,) = compute.parameters()
        is_columns = not hasattr(compute, "proxies")
        rows_of_proxies = proxies[0].reshape(-1, size)
        weights.data = (
            rows_of_proxies.T.contiguous() if is_columns else rows_of_proxies
        )
        watched.append(weights)
    else:
        compute = THEIRS[loss](pml)

    def step():
        value = compute(rows, labels)
        first, *others = torch.autograd.grad(value, watched)
        return value.detach(), [
            first,
            *(one.T if is_columns else one for one in others),
        ]

    return step


def differences(ours: Any, theirs: Any) -> tuple[float, float]:
    """How far our value and gradients are from theirs, shares of theirs."""
    value = abs(float(ours[0]) - float(theirs[0]))
    gradients = []
    for one, other in zip(ours[1], theirs[1], strict=True):
        one, other = map(as_host_array, (one, other))
        apart = np.linalg.norm(np.ravel(one) - np.ravel(other))
        gradients.append(apart / (np.linalg.norm(other) or 1.0))
    return value / (abs(float(theirs[0])) or 1.0), float(max(gradients))


def milliseconds(seconds: list[float]) -> str:
    """The median and the range of repeated times."""
    low, middle, high = 1e3 * np.quantile(seconds, (0.0, 0.5, 1.0))
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table; fails where values or gradients differ."""
    rows, differing = [], []
    for loss, batch_size, num_classes in tqdm(list_cases(settings)):
        labels, arrays = problem_of(
            loss, batch_size, num_classes, settings.embedding_size
        )
        steps = {"ours": our_step(loss, labels, arrays)}
        if HAS_THEIRS and loss in THEIRS:
            steps["theirs"] = their_step(loss, labels, arrays)
        times = in_turns(steps, settings.repeats, settings.seconds)
        proxies = math.prod(arrays[1].shape[:2]) if num_classes else ""
        row = [loss, str(len(labels)), str(proxies)]
        row += [milliseconds(times["ours"]), "", "", "", ""]
        if "theirs" in steps:
            # Rounding in float32 changes their triplet loss by up to 2e-5.
            exact = their_step(loss, labels, arrays, "float64")
            value, gradient = differences(steps["ours"](), exact())
            if value > VALUE_TOLERANCE or gradient > GRADIENT_TOLERANCE:
                differing.append(f"{loss} at a batch of {len(labels)}")
            row[4:] = [
                milliseconds(times["theirs"]),
                f"{min(times['theirs']) / min(times['ours']):.2f}",
                f"{value:.1e}",
                f"{gradient:.1e}",
            ]
        rows.append(row)
        # Garbage of one case would slow the next.
        gc.collect()
    yield Table(HEADINGS, rows)
    if differing:
        raise ValueError(f"Values or gradients differ: {', '.join(differing)}.")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
