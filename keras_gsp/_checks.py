"""Checks of arguments, and of tensors, in a graph too."""

import numbers
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._tensor import Tensor


def check_positive(**arguments: float) -> None:
    """Raises `ValueError` for an argument that is not in (0, infinity)."""
    check_interval("(0, inf)", **arguments)


def check_not_negative(**arguments: float) -> None:
    """Raises `ValueError` for an argument that is below 0, or NaN."""
    check_interval("[0, inf]", **arguments)


def is_integer(value: Any, *, least: int | None = None) -> bool:
    """Whether a value is an integer of at least `least`; NumPy's count."""
    is_one = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_one and (least is None or int(value) >= least)


def check_integer(
    *, least: int | None = None, is_optional: bool = False, **arguments: Any
) -> None:
    """Raises `ValueError` for an argument that is no integer or too small."""
    bound = "" if least is None else f" of at least {least}"
    for name, value in arguments.items():
        if is_optional and value is None:
            continue
        if not is_integer(value, least=least):
            raise ValueError(
                f"`{name}` must be an integer{bound}. "
                f"Received: {name}={value!r}."
            )


def check_count(*, is_optional: bool = False, **arguments: Any) -> None:
    """Raises `ValueError` for an argument that is no integer of at least 1."""
    check_integer(least=1, is_optional=is_optional, **arguments)


def check_interval(interval: str, **arguments: Any) -> None:
    """Raises `ValueError` for an argument outside an interval as "(0, 1]"."""
    low, high = map(float, interval[1:-1].split(","))
    for name, value in arguments.items():
        is_end = (value == low and interval[0] == "[") or (
            value == high and interval[-1] == "]"
        )
        if not (low < value < high or is_end):
            raise ValueError(
                f"`{name}` must be in {interval}. Received: {name}={value}."
            )


def check_choice(*allowed: Any, **arguments: Any) -> None:
    """Raises `ValueError` for an argument that is none of the allowed ones."""
    words = [f'"{x}"' if isinstance(x, str) else str(x) for x in allowed]
    for name, value in arguments.items():
        if value not in allowed:
            raise ValueError(
                f"`{name}` must be {', '.join(words[:-1])} or {words[-1]}. "
                f"Received: {name}={value!r}."
            )


def check_shape(shape: str, **tensors: Tensor) -> None:
    """Raises `ValueError` for a tensor of another rank than "(batch, size)"."""
    for name, tensor in tensors.items():
        if len(tensor.shape) != len(shape.strip("(,)").split(",")):
            raise ValueError(
                f"`{name}` must have shape {shape}. "
                f"Received: shape {tuple(tensor.shape)}."
            )


def check_same_size(
    one: Tensor,
    other: Tensor,
    names: tuple[str, str] = ("labels", "embeddings"),
    axis: int = 0,
) -> None:
    """Raises `ValueError` when both sizes of an axis are known and differ."""
    sizes = one.shape[axis], other.shape[axis]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must have the same "
            f"{'size' if axis else 'length'}. "
            f"Received: {sizes[0]} and {sizes[1]}."
        )


def concrete_value(tensor: Tensor) -> np.ndarray | None:
    """Returns a tensor as a NumPy array, or `None` while it is being traced."""
    if isinstance(tensor, bool | int | float | np.ndarray | np.generic):
        return np.asarray(tensor)
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        is_traced = not hasattr(tensor, "numpy")
    elif keras.backend.backend() == "jax":
        import jax

        is_traced = isinstance(tensor, jax.core.Tracer)
    else:
        is_traced = isinstance(tensor, keras.KerasTensor)
    return None if is_traced else ops.convert_to_numpy(tensor)


def require(
    value: Tensor, condition: Tensor, expectation: str, **received: Tensor
) -> Tensor:
    """Returns a value if a condition holds, else raises `ValueError`.

    In a TensorFlow graph an unknown condition becomes an assertion, which what
    is computed from the returned value waits for. Under XLA and JAX it cannot
    be raised: the caller must return finite values anyway. `expectation` is the
    sentence "`x` must be ...".
    """
    known = concrete_value(condition)
    if known is None and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        parts = [part for pair in received.items() for part in pair]
        check = tf.debugging.Assert(
            condition, [expectation, "Received:", *parts]
        )
        with tf.control_dependencies([check]):
            return tf.identity(value)
    if known is not None and not known:
        facts = ", ".join(
            f"{name}={concrete_value(value)}"
            for name, value in received.items()
        )
        raise ValueError(f"{expectation} Received: {facts}.")
    return value


def known_to_differ(one: tuple, other: tuple) -> bool:
    """Whether two shapes differ in rank or in a size that both know."""
    return len(one) != len(other) or any(
        None not in pair and pair[0] != pair[1]
        for pair in zip(one, other, strict=True)
    )
