"""What the methods add to a step of ResNet50.

    python -m training.research.benchmarks.step_share --json docs/results/step_share.json

Forward and backward pass of a backbone at random weights, of GSP on its
features (without and with XLA), and of the regularizers ZSR and XML on the
histograms of a batch; each alone, and as a share of the first backbone's step.
Aim: a regularizer adds at most 3 %. Times are processor times, which hardly
depend on other load. XLA compiles GSP once for each shape.

On an accelerator whole steps of encoder and multi-similarity loss are timed
instead, one for each pooling.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.ops.neighbors import has_accelerator
from training.recipes.encoder import build_head
from training.recipes.recipe import Recipe
from training.research.benchmarks.steps import (
    Step,
    gradient_step,
    in_turns,
    processor_seconds,
)
from training.research.report import (
    CommandSettings,
    Table,
    ratio_table,
    run_measurement,
)


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
    poolings: tuple[str, ...] = ("gap", "gsp", "delf")
    """Of whole steps, as recipes name them."""
    dtype: Literal["float32", "mixed_bfloat16"] = "mixed_bfloat16"
    """Of whole steps."""

    SMALL = {
        **{"batch_size": 4, "image_size": 32, "num_prototypes": 4},
        **{"num_classes": 3, "embedding_size": 8, "repeats": 1},
    }


def backward(function: Any, *inputs: Any, use_xla: bool = False) -> Step:
    """The gradient of the function's sum, of inputs and weights."""
    step, _ = gradient_step(
        function,
        [one.astype("float32") for one in inputs],
        getattr(function, "trainable_variables", ()),
        use_xla=use_xla,
    )
    return step


def methods(settings: Settings) -> Iterator[tuple[str, Step, int]]:
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


def whole_steps(settings: Settings) -> dict[str, Step]:
    """Steps of ResNet50, a pooling and multi-similarity, by pooling."""
    count, side = settings.batch_size, settings.image_size
    images = np.random.default_rng(0).normal(size=(count, side, side, 3))
    images = ops.convert_to_tensor(images, settings.dtype.rpartition("_")[2])
    loss, steps = gsp.losses.MultiSimilarityLoss(), {}
    keras.config.set_dtype_policy(settings.dtype)
    for word in settings.poolings:
        keras.utils.set_random_seed(0)
        backbone = keras.applications.ResNet50(
            include_top=False, weights=None, input_shape=(side, side, 3)
        )
        recipe = Recipe.of(
            pooling=word,
            embedding_size=settings.embedding_size,
            num_prototypes=settings.num_prototypes,
        )
        encoder = build_head(recipe, backbone)

        def value(images, labels, encoder=encoder):
            return loss(labels, encoder(images, training=True))

        constants = images, np.arange(count) // 4
        weights = encoder.trainable_variables
        steps[word], _ = gradient_step(value, [], weights, constants=constants)
    keras.config.set_dtype_policy("float32")
    return steps


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table with all times."""
    if has_accelerator():
        seconds = in_turns(whole_steps(settings), 5 * settings.repeats, 0.2)
        title = f"A step of {settings.batch_size} images, {settings.dtype}"
        yield ratio_table({n: (t, {}) for n, t in seconds.items()}, title)
        return
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
