"""`training.train` at a tiny size, as guides call it.

Started in place of `training.train` by test_many_processes.py. With KILLED_AT
the second of two processes is killed at that step.
"""

import os
import signal
import sys

import keras

from tests.training.test_train import SPLITS
from training import train
from training.datasets import glyphs
from training.recipes import glyph_network
from training.runs import callbacks

# Everything that processes have to agree on: batches, scores, sampled
# proxies, a second problem with anchors. Small, for XLA's sake.
TINY = [
    *("--embedding-size", "8", "--classes-per-batch", "4"),
    *("--samples-per-class", "2", "--steps", "10"),
    *("--steps-per-evaluation", "2", "--loss", "ms", "--ccp", "on"),
    *("--ccp-arguments", "patience=1", "warmup=1", "--ccp-pool-size", "3"),
    *("--proxies-per-class", "1"),
]


class Killed(keras.callbacks.Callback):
    """The end of one process in the middle of a run."""

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == int(os.environ["KILLED_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)


def is_killed():
    number = os.environ.get("KERAS_DISTRIBUTION_PROCESS_ID")
    return "KILLED_AT" in os.environ and number == "1"


if __name__ == "__main__":
    glyphs.load = lambda **_: SPLITS
    glyph_network.LAYERS["glyph-cnn"] = ((6, 2), (8, 2))
    if is_killed():
        build = callbacks.build_callbacks
        callbacks.build_callbacks = lambda *args, **kwargs: [
            *build(*args, **kwargs),
            Killed(),
        ]
    train.main([*sys.argv[1:], *TINY])
