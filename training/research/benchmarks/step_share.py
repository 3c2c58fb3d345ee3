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
        "batch_size": 4,
        "image_size": 32,
        "num_prototypes": 4,
        "num_classes": 3,
        "embedding_size": 8,
        "repeats": 1,
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


def backbones(settings: Settings) -> dict[str, keras.Model]:
    """Backbones by name, the unit of the shares first."""
    shape = settings.image_size, settings.image_size, 3
    options = {"include_top": False, "weights": None, "input_shape": shape}
    return {
        "ResNet50": keras.applications.ResNet50(**options),
        "MobileNetV2 0.35": keras.applications.MobileNetV2(
            alpha=0.35, **options
        ),
    }


def backward(
    function: Callable[..., Any],
    inputs: list[Any],
    weights: list[Any],
    *,
    use_xla: bool = False,
) -> Callable[[], Any]:
    """A step: the function's sum, and the gradient of inputs and weights."""
    import tensorflow as tf

    tensors = [tf.constant(array, "float32") for array in inputs]

    @tf.function(autograph=False, jit_compile=use_xla)
    def step(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(function(*tensors))
        return tape.gradient(total, [*tensors, *weights])

    return lambda: step(*tensors)


def methods(
    settings: Settings, features_shape: tuple[int, ...]
) -> dict[str, Callable[[], Any]]:
    """Steps of what the methods add, by name."""
    generator = np.random.default_rng(0)
    count = settings.batch_size
    labels = np.arange(count) // 2 % settings.num_classes
    halves = labels % 2 == 0
    histograms = generator.dirichlet(np.ones(settings.num_prototypes), count)
    size = settings.embedding_size
    embeddings = generator.normal(size=(count, size))
    table = generator.normal(size=(settings.num_classes, size))
    zero_shot = gsp.losses.ZeroShotLoss()
    cross_batch = gsp.losses.CrossBatchLoss(gsp.losses.MultiSimilarityLoss())
    features = generator.normal(size=features_shape)
    found = {}
    for use_xla in (False, True):
        layer = gsp.layers.GeneralizedSumPooling(settings.num_prototypes)
        layer.build(features_shape)
        name = "GSP, compiled by XLA" if use_xla else "GSP"
        found[name] = backward(
            layer, [features], [layer.prototypes.value], use_xla=use_xla
        )
    found["ZSR"] = backward(
        lambda h, t: zero_shot.compute(labels, h, t, halves),
        [histograms, table],
        [],
    )
    found["XML"] = backward(
        lambda h, e: cross_batch.compute(labels, h, e, halves),
        [histograms, embeddings],
        [],
    )
    return found


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table with all times."""
    generator = np.random.default_rng(0)
    shape = settings.batch_size, settings.image_size, settings.image_size, 3
    images = generator.normal(size=shape)
    times, features_shape = {}, ()
    for name, model in tqdm(backbones(settings).items(), desc="backbones"):
        features_shape = features_shape or (
            settings.batch_size,
            *model.output_shape[1:],
        )
        weights = [variable.value for variable in model.trainable_variables]
        step = backward(model, [images], weights)
        times[name] = processor_seconds(step, settings.repeats)
    for name, step in methods(settings, features_shape).items():
        times[name] = processor_seconds(step, 10 * settings.repeats)
    unit = next(iter(times.values()))[0]
    rows = [
        [name, f"{step:.4g}", f"{100 * step / unit:.3g}", f"{first:.2g}"]
        for name, (step, first) in times.items()
    ]
    headings = (
        "",
        "processor seconds a step",
        "% of the first",
        "seconds once, to trace and compile",
    )
    yield Table(headings, rows)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
