"""Pipelines of `tf.data` without an autotuner, where TensorFlow is there."""

import functools
import importlib.util
from typing import Any


@functools.cache
def has_tensorflow() -> bool:
    """Whether TensorFlow is installed; Pillow reads images where it is not."""
    return importlib.util.find_spec("tensorflow") is not None


def untuned(dataset: Any) -> Any:
    """Switches the autotuner of a `tf.data.Dataset` off.

    The end of an iterator would wait seconds for its thread.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
