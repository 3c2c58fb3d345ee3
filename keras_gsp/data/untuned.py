"""Pipelines of `tf.data` without an autotuner."""

from typing import Any


def untuned(dataset: Any) -> Any:
    """Switches the autotuner of a `tf.data.Dataset` off.

    The end of an iterator waits for the autotuner's thread, which sleeps at
    doubling intervals: seconds after each training and evaluation. Without it
    `tf.data.AUTOTUNE` is the number of cores.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
