"""What a pooling costs, forward and backward, beside a 1x1 convolution.

    python -m training.research.benchmarks.pooling --json poolings.json
    KERAS_BACKEND=jax python -m training.research.benchmarks.pooling  # or torch

One case for each size, dtype and compiler. The unit is a 1x1 convolution to
as many kernels as GSP has prototypes, the least cost of comparing features
with prototypes. Poolings have their names in recipes. `to the floor` compares with
three passes over the features at the speed of a copy: one forward, and one reading
and one writing backward. Memory is what XLA plans
beside inputs and outputs (JAX only, which always compiles with XLA). Aim with
XLA at (32, 7, 7, 128) and 64 prototypes: at most 1.5 times the unit.

Tables of heads measure everything between the backbone's channels and the
embedding, in the order of recipes: some poolings see projected features, some
the backbone's. There the unit is the projection to the embedding's width.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from training.recipes.choices import POOLINGS
from training.recipes.learner import build_head, build_pooling
from training.recipes.recipe import Recipe
from training.research import report
from training.research.benchmarks.step_share import (
    Step,
    calls_for,
    gradient_step,
    in_turns,
    seconds_of,
)
from training.research.report import Table, ratio_table

UNIT = "1x1 convolution"
OURS = "gsp"


@dataclass(frozen=True, kw_only=True)
class Settings(report.CommandSettings):
    """What to measure."""

    sizes: tuple[tuple[int, int, int, int, int], ...] = (
        (32, 7, 7, 128, 64),
        (112, 7, 7, 512, 64),
        (32, 14, 14, 128, 128),
        (8, 56, 56, 128, 128),
    )
    """Batch, height, width, channels, prototypes."""
    heads: tuple[tuple[int, int, int, int, int, int], ...] = (
        (32, 5, 5, 1280, 64, 128),
    )
    """Batch, height, width, the backbone's channels, prototypes, embedding
    size."""
    dtypes: tuple[Literal["float32", "bfloat16"], ...] = "float32", "bfloat16"
    """Dtype of features and gradients; solvers run in float32."""
    xla: tuple[bool, ...] = (True, False)
    """Compiled by XLA or not."""
    poolings: tuple[str, ...] = tuple(POOLINGS)
    """Words of the poolings to measure, all by default."""
    repeats: int = 15
    """Timed runs of each pooling; the median is printed."""
    seconds: float = 0.05
    """Least length of a timed run; short steps are repeated in it."""

    SMALL = {
        **{"sizes": ((2, 3, 3, 8, 2),), "heads": ((2, 3, 3, 8, 2, 4),)},
        **{"dtypes": ("float32",), "xla": (False,), "seconds": 0.001},
        **{"poolings": ("gap", OURS), "repeats": 1},
    }


def contenders(words: Sequence[str], size: Sequence[int]) -> dict[str, Any]:
    """Poolings by their names in recipes, the unit of the ratios first.

    `size` is batch, height, width, channels, prototypes; with an embedding size
    behind, the contenders are heads of recipes.
    """
    _, *shape, num_prototypes = size[:5]
    is_head = len(size) > 5
    kernels = size[-1]  # of a head its embedding size
    recipe = Recipe.of(
        embedding_size=kernels if is_head else shape[-1],
        num_prototypes=num_prototypes,
        transport_ratio=0.3,
        inverse_temperature=5.0,
    )
    layers: dict[str, Any] = {
        UNIT: keras.layers.Conv2D(kernels, 1, use_bias=False)
    }
    for word in words:
        named = recipe.with_(pooling=word)
        inputs = keras.Input(shape)
        backbone = keras.Model(inputs, keras.layers.Identity()(inputs))
        layers[word] = (
            build_head(named, backbone) if is_head else build_pooling(named)
        )
    return layers


def step_of(
    layer: Any, features: Any, use_xla: bool, generator: np.random.Generator
) -> tuple[Step, int | None]:
    """The layer's step and memory, for a random upstream gradient.

    So no compiler can skip work.
    """
    outputs = layer(features)
    upstream = generator.normal(size=outputs.shape)
    return gradient_step(
        layer,
        [features],
        layer.trainable_variables,
        upstream=ops.convert_to_tensor(upstream, dtype=outputs.dtype),
        use_xla=use_xla,
    )


def compare(
    size: Sequence[int], dtype: str, use_xla: bool, settings: Settings
) -> dict[str, tuple[list[float], dict[str, str]]]:
    """Times all contenders in turns, so that other load hits them all."""
    shape = size[:4]
    generator = np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    features = generator.normal(size=shape) / math.sqrt(shape[-1])
    features = ops.convert_to_tensor(features, dtype=dtype)
    # Recipes build their layers in the current policy.
    policy = "mixed_bfloat16" if dtype == "bfloat16" else dtype
    keras.config.set_dtype_policy(policy)
    layers = contenders(settings.poolings, size)
    keras.config.set_dtype_policy("float32")
    # Its step makes four passes over the features.
    double = keras.layers.Rescaling(2.0, dtype=dtype)
    copy, _ = step_of(double, features, use_xla, generator)
    floor = 0.75 * seconds_of(copy, calls_for(copy, settings.seconds))
    steps, memory = {}, {}
    for name, layer in layers.items():
        made = step_of(layer, features, use_xla, generator)
        steps[name], memory[name] = made
    seconds = in_turns(steps, settings.repeats, settings.seconds)
    rows = {}
    for name, times in seconds.items():
        planned, unit = memory[name], memory[UNIT]
        facts = {
            "to the floor": f"{np.median(times) / floor:.1f}",
            # Empty where unknown.
            "memory": ""
            if planned is None or not unit
            else f"{planned / unit:.2f}",
            "parameters": str(layers[name].count_params()),
        }
        rows[name] = times, facts
    return rows


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size, dtype and compiler."""
    backend = keras.backend.backend()
    cases = [
        (size, dtype, use_xla)
        for size in (*settings.sizes, *settings.heads)
        for dtype in settings.dtypes
        for use_xla in {"jax": (True,), "torch": (False,)}.get(
            backend, settings.xla
        )
    ]
    for size, dtype, use_xla in tqdm(cases, desc="poolings"):
        rows = compare(size, dtype, use_xla, settings)
        *shape, num_prototypes = size[:5]
        compiler = "XLA" if use_xla else "no XLA"
        title = (
            f"{tuple(shape)}, {num_prototypes} prototypes, {dtype}, "
            f"{backend}, {compiler}"
        )
        if len(size) > 5:
            title = f"head of {size[5]}, {title}"
        yield ratio_table(rows, title, "pooling")


if __name__ == "__main__":
    report.run_measurement(sys.modules[__name__])
