"""Draws arrays, and computes results and gradients on either backend.

`python -m tests.properties.values FILE.npz` computes every subject on fixed
arrays and keeps the results, for comparison with another backend.
"""

import sys
from typing import Any

import keras
import numpy as np
from keras import ops

from tests.properties.subjects import SUBJECTS, Subject, fixed

KINDS = ("normal", "zeros", "equal", "zero row", "huge", "tiny", "mixed")
# Norms whose inverse half precision can hold.
HALF = 1e-3, 1e3


def drawn(
    subject: Subject,
    kind: str,
    dtype: str,
    batch: int,
    num_classes: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and the subject's array in float64."""
    generator = np.random.default_rng(seed)
    labels = np.arange(batch) % min(num_classes, 5)
    shape = (batch, *subject.shapes[0])
    array = generator.normal(size=shape)
    low, high = 1.0 / subject.largest, subject.largest
    if dtype == "float16":
        low, high = HALF
    match kind:
        case "zeros":
            array *= 0.0
        case "equal":
            array = np.broadcast_to(array[:1], shape).copy()
        case "zero row":
            array[:1] = 0.0
        case "huge":
            array *= high / np.abs(array).max(initial=1.0)
        case "tiny":
            array *= low
        case "mixed":
            powers = generator.uniform(np.log10(low), np.log10(high), batch)
            powers = powers.reshape(-1, *[1] * (array.ndim - 1))
            array *= 10.0**powers / np.abs(array).max(initial=1.0)
    return labels, array


def floats(results: Any) -> list:
    """The floating tensors among results."""
    flat = results if isinstance(results, tuple | list) else [results]
    return [x for x in flat if "float" in str(x.dtype)]


def results(
    subject: Subject, labels: np.ndarray, array: np.ndarray
) -> list[np.ndarray]:
    """The results for an array in float32."""
    tensor = ops.convert_to_tensor(array, dtype="float32")
    return _plain(floats(subject.compute(labels, tensor)))


def slopes(
    subject: Subject, labels: np.ndarray, array: np.ndarray, dtype: str
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Results, and the gradient of a fixed combination of them."""
    tensor = ops.convert_to_tensor(array, dtype=dtype)

    def combined(tensor):
        outputs = floats(subject.compute(labels, tensor))
        total = 0.0
        for output in outputs:
            weights = ops.cast(fixed(*output.shape), "float32")
            total += ops.sum(weights * ops.cast(output, "float32"))
        return total, outputs

    if not subject.is_smooth:
        return _plain(floats(subject.compute(labels, tensor))), None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensor)
            total, outputs = combined(tensor)
        gradient = tape.gradient(total, tensor)
    else:
        import jax

        gradient, outputs = jax.jit(jax.grad(combined, has_aux=True))(tensor)
    plain = None if gradient is None else _plain([gradient])[0]
    return _plain(outputs), plain


def fixed_cases() -> dict[str, np.ndarray]:
    """Name -> numbers, of arrays that both backends can compute."""
    found = {}
    for name, subject in SUBJECTS.items():
        if subject.is_random:
            continue
        labels, array = drawn(subject, "normal", "float32", 4, 2, 0)
        outputs, gradient = slopes(subject, labels, array, "float32")
        for number, output in enumerate(outputs):
            found[f"{name} {number}"] = output
        if gradient is not None:
            found[f"{name} gradient"] = gradient
    return found


def _plain(tensors):
    # Half precision has no NumPy dtype of its own everywhere.
    return [
        np.asarray(ops.convert_to_numpy(ops.cast(x, "float32")), "float64")
        for x in tensors
    ]


if __name__ == "__main__":
    np.savez(sys.argv[1], **fixed_cases())
