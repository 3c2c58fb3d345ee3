"""What the methods add to a step of ResNet50, in processor time.

    python -m training.research.benchmarks.step_share --json docs/results/step_share.json

Forward and backward pass of a backbone at random weights, of GSP on its
features (without and with XLA), and of the regularizers ZSR and XML on the
histograms of a batch; each alone, and as a share of the first backbone's step.
Aim: a regularizer adds at most 3 %. Times are processor times, which hardly
depend on other load. XLA compiles GSP once for each shape.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.research.report import CommandSettings, Table, run_measurement


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    batch_size: int = 32
    image_size: int = 224
    num_prototypes: int = 64
    num_classes: int = 100
    embedding_size: int = 128
    repeats: int = 2
    """Timed steps of a backbone; ten times as many of all others."""

    SMALL = {
        **{"batch_size": 4, "image_size": 32, "num_prototypes": 4},
        **{"num_classes": 3, "embedding_size": 8, "repeats": 1},
    }


def processor_seconds(
    step: Callable[[], Any], repeats: int
) -> tuple[float, float]:
    """Median of a step, and the extra time of the first one."""
    times = []
    for _ in range(1 + repeats):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    median = float(np.median(times[1:]))
    return median, times[0] - median


def backward(
    function: Callable[..., Any], *inputs: Any, use_xla: bool = False
) -> Callable[[], Any]:
    """A step: the function's sum, and the gradient of inputs and weights."""
    import tensorflow as tf

    tensors = [tf.constant(array, "float32") for array in inputs]

    @tf.function(autograph=False, jit_compile=use_xla)
    def step(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(function(*tensors))
        weights = getattr(function, "trainable_variables", ())
        weights = [variable.value for variable in weights]
        return tape.gradient(total, [*tensors, *weights])

    return lambda: step(*tensors)


def methods(settings: Settings) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yields name, step and repetitions; backbones first, the unit before."""
    generator = np.random.default_rng(0)
    side, count = settings.image_size, settings.batch_size
    images = generator.normal(size=(count, side, side, 3))
    options: dict[str, Any] = {"include_top": False, "weights": None}
    options["input_shape"] = images.shape[1:]
    backbone = keras.applications.ResNet50(**options)
    yield "ResNet50", backward(backbone, images), settings.repeats
    small = keras.applications.MobileNetV2(alpha=0.35, **options)
    yield "MobileNetV2 0.35", backward(small, images), settings.repeats
    features = generator.normal(size=(count, *backbone.output_shape[1:]))
    for name, use_xla in (("GSP", False), ("GSP, compiled by XLA", True)):
        layer = gsp.layers.GeneralizedSumPooling(settings.num_prototypes)
        layer.build(features.shape)
        step = backward(layer, features, use_xla=use_xla)
        yield name, step, 10 * settings.repeats
    labels = np.arange(count) // 2 % settings.num_classes
    halves = labels % 2 == 0
    histograms = generator.dirichlet(np.ones(settings.num_prototypes), count)
    size = settings.embedding_size
    zero_shot = gsp.losses.ZeroShotLoss()
    cross_batch = gsp.losses.CrossBatchLoss(gsp.losses.MultiSimilarityLoss())
    for name, loss, rows in (
        ("ZSR", zero_shot, settings.num_classes),
        ("XML", cross_batch, count),
    ):
        step = backward(
            lambda h, e, loss=loss: loss.compute(labels, h, e, halves),
            histograms,
            generator.normal(size=(rows, size)),
        )
        yield name, step, 10 * settings.repeats


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table with all times."""
    rows, unit = [], None
    for name, run, repeats in tqdm(methods(settings), desc="steps"):
        step, first = processor_seconds(run, repeats)
        unit = unit or step
        share = f"{100 * step / unit:.3g}"
        rows.append([name, f"{step:.4g}", share, f"{first:.2g}"])
    headings = ["", "processor seconds a step", "% of the first"]
    headings.append("seconds once, to trace and compile")
    yield Table(headings, rows)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
