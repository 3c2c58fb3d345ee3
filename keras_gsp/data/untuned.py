"""Pipelines of `tf.data` that end at once."""

from typing import Any


def untuned(dataset: Any) -> Any:
    """Switches the autotuner of a pipeline off.

    Its thread looks at the pipeline at intervals that double, and whoever
    ends an iterator waits for the current one: seconds after each training
    and evaluation, in which nothing is computed. Without it `tf.data.AUTOTUNE`
    is as many parallel calls as there are cores.

    Args:
        dataset: `tf.data.Dataset`.

    Returns:
        The same elements.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
