"""TensorFlow where it is installed, and `tf.data` without an autotuner."""

import functools
import importlib.util
from typing import Any


class _TensorFlow:
    """TensorFlow, imported when it is first used."""

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        return getattr(tensorflow, name)


tf: Any = _TensorFlow()


@functools.cache
def has_tensorflow() -> bool:
    """Whether TensorFlow is installed; Pillow reads images where it is not."""
    return importlib.util.find_spec("tensorflow") is not None


def untuned(dataset: Any) -> Any:
    """Switches off the autotuner, whose thread ends an iterator late."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
