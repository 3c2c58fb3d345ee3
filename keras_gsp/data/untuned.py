"""Pipelines of `tf.data` without an autotuner."""

from typing import Any


def untuned(dataset: Any) -> Any:
    """Switches the autotuner of a `tf.data.Dataset` off.

    The end of an iterator would wait seconds for its thread.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
