"""Steps of any backend, forward and backward, and how long they take."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

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
