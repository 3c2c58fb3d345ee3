"""How well does the network of the CIFAR-10 collages know single pictures?

    python -m training.research.experiments.cifar_classifier --data-dir cifar10.zip

Pretrains `picture-cnn` on single pictures of 32 pixels, as a classifier of all
ten classes, for the study `cifar-collage`. It learns the files in `train/` and
scores those in `test/`, of which the study's test is made. The weights are kept.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.datasets.collage import load_pictures
from training.recipes.glyph_network import train_classifier
from training.research.report import CommandSettings, Table, run_measurement


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """The images, the length of training and the file to write."""

    data_dir: Path
    """CIFAR-10 as an image folder, or its archive."""
    weights: Path = Path("runs/cifar.weights.h5")
    """File of the pretrained network."""
    images_per_class: int | None = None
    """Most images of a class; all by default."""
    epochs: int = 8

    SMALL = {"images_per_class": 20, "epochs": 1}


def measure(settings: Settings) -> dict:
    """Trains, keeps the weights, and scores images that were held out."""
    train, test = (
        load_pictures(settings.data_dir, 32, settings.images_per_class, side)
        for side in ("train", "test")
    )
    model = train_classifier("picture-cnn", train, settings.epochs)
    settings.weights.parent.mkdir(parents=True, exist_ok=True)
    model.get_layer("glyph_cnn").save_weights(settings.weights)
    found = model.predict(test.images, batch_size=256, verbose=0).argmax(axis=1)
    return {
        "images": len(train),
        "held_out": len(test),
        "accuracy": float(np.mean(found == test.labels)),
    }


def tables(results: dict) -> list[Table]:
    """The accuracy in one line."""
    cells = results["images"], results["held_out"]
    row = [*map(str, cells), f"{100 * results['accuracy']:.1f}"]
    return [Table(["images", "held out", "accuracy %"], [row], 0)]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
