"""What a second look costs.

    python -m training.research.benchmarks.looks --json docs/results/looks.json

Embeds a batch of photographs with MobileNetV2 at random weights and GSP, once;
with `gsp.models.TwoLooks`, which resizes, crops and embeds again; and with a first
look at half the side. Times are processor times, which hardly depend on other load.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import keras
import numpy as np

import keras_gsp as gsp
from training.research.benchmarks.steps import processor_seconds
from training.research.report import (
    CommandSettings,
    Table,
    ratio_table,
    run_measurement,
)


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    batch_size: int = 32
    image_size: int = 448
    """Side of the photographs."""
    encoder_size: int = 224
    """Side of what the encoder sees."""
    width: float = 1.0
    """Width of MobileNetV2."""
    repeats: int = 9

    SMALL = {"batch_size": 2, "image_size": 72, "encoder_size": 64}


def encoder_at(side: int, width: float) -> keras.Model:
    """MobileNetV2 and GSP for images of this side."""
    options = {"include_top": False, "weights": None, "alpha": width}
    network = keras.applications.MobileNetV2(
        input_shape=(side, side, 3), **options
    )
    return gsp.models.build_encoder(
        network,
        embedding_size=128,
        pooling=gsp.layers.GeneralizedSumPooling(64, 0.1),
    )


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table, ratios to a single look."""
    large, side = settings.image_size, settings.encoder_size
    images = np.random.default_rng(0).random(
        (settings.batch_size, large, large, 3)
    )
    once = encoder_at(side, settings.width)
    half = encoder_at(side // 2, settings.width)
    half.set_weights(once.get_weights())
    found: dict[str, tuple[list[float], dict]] = {}
    for name, model, given in (
        ("one look", once, images[:, :side, :side]),
        ("two looks", gsp.models.TwoLooks(once), images),
        ("the first at half the side", gsp.models.TwoLooks(half, once), images),
    ):
        pixels = keras.ops.convert_to_tensor(255 * given, "float32")
        step = partial(model.predict_on_batch, pixels)
        times = [processor_seconds(step, 1)[0] for _ in range(settings.repeats)]
        found[name] = times, {}
    yield ratio_table(found)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
