"""Digits that the device keeps in float32.

    python -m training.research.benchmarks.digits --json digits.json

Each function and its gradient, in float32 on the backend's device, beside the
same code in float64 on the host: the length of the difference as a share of the
length. `a plain product` is the backend's, as its own settings have it;
everything else should keep 1e-6, sharp selections and gradients 1e-5. On PyTorch
Keras rounds some results in float64 to float32.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.precision import full_matmul
from training.research.benchmarks.step_share import gradient_step
from training.research.report import CommandSettings, Table, run_measurement


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    batch_size: int = 64
    side: int = 7
    channels: int = 512
    num_prototypes: int = 64

    SMALL = {"batch_size": 8, "side": 3, "channels": 8, "num_prototypes": 4}


def functions(
    settings: Settings, dtype: str
) -> dict[str, tuple[Callable, list[np.ndarray]]]:
    """Functions of arrays, in `dtype`, and the arrays."""
    draw = np.random.default_rng(0)
    count, channels = settings.batch_size, settings.channels
    rows = draw.normal(size=(count, channels)) / np.sqrt(channels)
    labels = np.arange(count) // 4
    shape = count, settings.side, settings.side, channels
    features = draw.normal(size=shape) / np.sqrt(channels)
    histograms = draw.dirichlet(np.ones(settings.num_prototypes), count)
    classes = draw.normal(size=(labels.max() + 1, channels))
    halves = np.arange(count) % 2 == 0

    def pooled(**arguments):
        layer = gsp.layers.GeneralizedSumPooling(
            settings.num_prototypes, dtype=dtype, **arguments
        )
        layer.build(features.shape)
        weights = layer.trainable_variables
        arrays = [draw.normal(size=one.shape) for one in weights]

        def pool(features, *values):
            state = zip(weights, values, strict=True)
            with keras.StatelessScope(state_mapping=state):
                return layer(features)

        return pool, [features, *(one / np.sqrt(channels) for one in arrays)]

    def of_pairs(kind):
        loss = kind(dtype=dtype)
        return lambda rows: loss(labels, rows), [rows]

    zero_shot = gsp.losses.ZeroShotLoss()
    cross = gsp.losses.CrossBatchLoss(gsp.losses.MultiSimilarityLoss())
    plain = full_matmul if dtype == "float64" else ops.matmul
    return {
        "a plain product": (plain, [rows, rows.T]),
        "product": (full_matmul, [rows, rows.T]),
        "distances": (pairwise_distances, [rows, rows[::-1] + 0.1]),
        "GSP": pooled(),
        "GSP, sharp": pooled(transport_ratio=0.05, inverse_temperature=80.0),
        "GSP, affine costs": pooled(use_affine_costs=True),
        "contrastive (C2)": of_pairs(gsp.losses.ContrastiveLoss),
        "multi-similarity": of_pairs(gsp.losses.MultiSimilarityLoss),
        "ZSR": (
            lambda h, e: zero_shot.compute(labels, h, e, halves),
            [histograms, classes],
        ),
        "XML": (
            lambda h, e: cross.compute(labels, h, e, halves),
            [histograms, rows],
        ),
    }


def computed(function: Callable, arrays: list, dtype: str) -> list[np.ndarray]:
    """Value and gradients, for a gradient of ones."""
    inputs = [ops.convert_to_tensor(one, dtype=dtype) for one in arrays]
    step, _ = gradient_step(function, inputs, use_xla=False)
    value, gradients = step()
    return [ops.convert_to_numpy(one) for one in (value, *gradients)]


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Computes on the host, in float64 where asked."""
    with contextlib.ExitStack() as scopes:
        if keras.backend.backend() == "jax":
            import jax

            scopes.enter_context(jax.enable_x64(True))
        scopes.enter_context(keras.device("cpu"))
        yield


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table."""
    rows = []
    singles = functions(settings, "float32")
    with double_precision():
        doubles = functions(settings, "float64")
    for name, (function, arrays) in singles.items():
        single = computed(function, arrays, "float32")
        with double_precision():
            true = computed(doubles[name][0], arrays, "float64")
        apart = [
            np.linalg.norm(one - other) / np.linalg.norm(other)
            for one, other in zip(single, true, strict=True)
        ]
        rows.append([name, f"{apart[0]:.1e}", f"{max(apart[1:]):.1e}"])
    embeddings = singles["product"][1][0].astype("float32")
    same = np.diag(ops.convert_to_numpy(pairwise_distances(*2 * [embeddings])))
    rows.append(["distance of a row from itself", f"{same.max():.1e}", ""])
    yield Table(["", "value", "gradient"], rows)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
