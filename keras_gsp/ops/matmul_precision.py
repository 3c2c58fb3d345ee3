"""Matrix products in full float32, where rankings depend on the last bits."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras


@contextlib.contextmanager
def full_precision_matmul() -> Iterator[Any]:
    """Switches reduced-precision float32 products off inside a `with` block.

    Recent GPUs round the factors of a float32 product to ten bits of mantissa
    (TensorFloat-32) unless told otherwise. A loss does not notice, the order
    of near neighbours does. The former setting is restored afterwards; on
    TensorFlow it belongs to the whole process, on JAX to the thread.

    Example:

    ```python
    from keras_gsp.ops.matmul_precision import full_precision_matmul

    with full_precision_matmul():
        product = keras.ops.matmul(np.eye(2), np.eye(2))
    ```
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        former = tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(former)
    elif keras.backend.backend() == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    else:
        yield
