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

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.ops.neighbors import has_accelerator
from training.recipes.learner import build_head
from training.recipes.recipe import Recipe
from training.research.report import (
    CommandSettings,
    Table,
    ratio_table,
    run_measurement,
)

# Runs a step without waiting for the device; returns outputs and gradients.
Step = Callable[[], tuple[Any, Sequence[Any]]]


def gradient_step(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    variables: Sequence[keras.Variable] = (),
    *,
    constants: Sequence[Any] = (),
    upstream: Any = None,
    use_xla: bool = True,
) -> tuple[Step, int | None]:
    """A step: `function` of inputs and constants, and its gradients.

    They are those of inputs, then variables, for `upstream`, the gradient of
    the outputs, by default ones. The other result is the memory in bytes that
    XLA plans beside inputs and outputs, `None` where unknown. `use_xla` counts
    on TensorFlow; JAX always compiles.
    """
    inputs, constants = (
        [ops.convert_to_tensor(one) for one in some]
        for some in (inputs, constants)
    )
    parts = function, inputs, list(variables), constants, upstream
    match keras.backend.backend():
        case "jax":
            return _jax_step(*parts)
        case "torch":
            return _torch_step(*parts), None
    return _tensorflow_step(*parts, use_xla), None


def _jax_step(function, inputs, variables, constants, upstream):
    import jax

    weights = [one.value for one in variables]

    @jax.jit
    def step(inputs, weights, constants, upstream):
        def forward(inputs, weights):
            # `stateless_call` would leave mixed precision out.
            state = zip(variables, weights, strict=True)
            with keras.StatelessScope(state_mapping=state):
                return function(*inputs, *constants)

        outputs, pull = jax.vjp(forward, inputs, weights)
        ours, others = pull(
            ops.ones_like(outputs) if upstream is None else upstream
        )
        return outputs, [*ours, *others]

    arrays = inputs, weights, constants, upstream
    planned = step.lower(*arrays).compile()
    facts = planned.memory_analysis()
    memory = None if facts is None else facts.temp_size_in_bytes
    return lambda: planned(*arrays), memory


def _torch_step(function, inputs, variables, constants, upstream):
    import torch

    inputs = [one.detach().requires_grad_() for one in inputs]
    watched = [*inputs, *(one.value for one in variables)]

    def step():
        outputs = function(*inputs, *constants)
        pulled = torch.ones_like(outputs) if upstream is None else upstream
        # Zero where nothing depends on a weight.
        gradients = torch.autograd.grad(
            outputs, watched, pulled, materialize_grads=True
        )
        return outputs.detach(), gradients

    return step


def _tensorflow_step(function, inputs, variables, constants, upstream, use_xla):
    import tensorflow as tf

    weights = [one.value for one in variables]

    @tf.function(autograph=False, jit_compile=use_xla)
    def step(inputs, constants, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs, *constants)
        return outputs, tape.gradient(
            outputs,
            [*inputs, *weights],
            output_gradients=upstream,
            unconnected_gradients="zero",
        )

    return lambda: step(inputs, constants, upstream)


def wait(results: Any = None) -> None:
    """Waits until the device has computed a step's results."""
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready(results)
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.test.experimental.sync_devices()
    # Of a backend, or of a library beside it.
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.synchronize()


def calls_for(step: Step, seconds: float) -> int:
    """How often to call a step to fill so many seconds; warms it up."""
    seconds_of(step, 3)
    return max(3, math.ceil(seconds / seconds_of(step, 3)))


def seconds_of(step: Step, calls: int) -> float:
    """Mean seconds of a step in a row of calls."""
    start = time.perf_counter()
    for _ in range(calls):
        results = step()
    wait(results)
    return (time.perf_counter() - start) / calls


def in_turns(
    steps: dict[str, Step], repeats: int, seconds: float
) -> dict[str, list[float]]:
    """Repeated times of all steps in turns, so that other load hits all."""
    calls = {name: calls_for(step, seconds) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(seconds_of(step, calls[name]))
    return times


def processor_seconds(step: Step, repeats: int) -> tuple[float, float]:
    """Median of a step's processor time, and the first one's beyond it."""
    times = []
    for _ in range(1 + repeats):
        start = time.process_time()
        wait(step())
        times.append(time.process_time() - start)
    median = float(np.median(times[1:]))
    return median, times[0] - median


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
