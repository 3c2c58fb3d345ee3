"""Counts the steps of an epoch."""

import threading

import keras


class StepCounter(keras.callbacks.Callback):
    """Counts the steps of an epoch, whose ends Keras may report out of order.

    Attributes:
        num_steps: steps of this epoch so far.
    """

    # Counting steps must not make Keras wait for every batch.
    async_safe = True
    _counting = threading.Lock()
    num_steps = 0

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.num_steps = 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts a step."""
        with self._counting:
            self.num_steps = max(self.num_steps, batch + 1)
