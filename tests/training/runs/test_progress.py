"""What a run says while it trains."""

import keras
import numpy as np

from training.runs.progress import ProgressBar


class Score(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        logs["val_map_at_r"] = 0.5 / (epoch + 1)


def test_in_a_log_an_evaluation_is_a_line(capfd, monkeypatch):
    # The bar decides by the stream, whatever the environment says of bars.
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(
        np.zeros((20, 2)),
        np.zeros(20),
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=[Score(), ProgressBar("try", 10)],
    )
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        "try: step 10, loss 0.000, val_map_at_r 0.500, best 0.500",
        "try: step 20, loss 0.000, val_map_at_r 0.250, best 0.500",
    ]
    assert "try" not in err
