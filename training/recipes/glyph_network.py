"""The small network of the `glyphs` data set, and its pretraining."""

from pathlib import Path

import keras
from tqdm import tqdm

from keras_gsp.data import ImageSet
from keras_gsp.data.archives import cache_folder
from keras_gsp.storage.whole import whole_file

CHARACTERS = "characters"
"""`backbone_weights` of a recipe: weights pretrained on single characters."""
# Filters and strides of the convolutions. Features see 43 of 48 pixels, 19, or
# the whole canvas.
LAYERS: dict[str, tuple[tuple[int, int], ...]] = {
    "glyph-cnn": ((16, 2), (16, 1), (32, 2), (48, 1), (96, 2), (96, 1)),
    "glyph-cnn-local": ((16, 2), (32, 1), (64, 2), (96, 1)),
}
LAYERS["glyph-cnn-global"] = (*LAYERS["glyph-cnn"], *((96, 1),) * 4)
# For collages of 64 pixels: widths and strides of a ResNet with one block a
# stage. Features see 25 pixels.
LAYERS["picture-cnn"] = (*((16, 1),) * 3, (32, 2), (32, 1), (64, 2), (64, 1))
# Training takes some hundred steps; with Keras's 0.99 the averages that scoring
# uses would be a hundred steps old.
MOMENTUM = 0.9

PIXELS = {"scale": -1 / 255, "offset": 1.0}
"""Rescaling of uint8 pixels to ink in [0, 1]."""
EPOCHS = 8


def glyph_network(image_shape: tuple, backbone: str) -> keras.Model:
    """Builds one of the networks in `LAYERS`, for ink in [0, 1]."""
    network = keras.Sequential([keras.Input(image_shape)], name="glyph_cnn")
    for number, (filters, strides) in enumerate(LAYERS[backbone], start=1):
        shape = {"strides": strides, "padding": "same", "use_bias": False}
        name = f"normalization_{number}"
        for layer in (
            keras.layers.Conv2D(
                filters, 3, **shape, name=f"convolution_{number}"
            ),
            keras.layers.BatchNormalization(momentum=MOMENTUM, name=name),
            keras.layers.ReLU(name=f"relu_{number}"),
        ):
            network.add(layer)
    return network


def character_weights(backbone: str) -> Path:
    """Returns the network's weights, trained on `single_characters` once.

    That takes about 40 seconds on two cores; the file is in the cache folder.
    """
    file = cache_folder() / f"{backbone}-characters.weights.h5"
    if not file.exists():
        from training.datasets.glyphs import single_characters

        model = train_classifier(backbone, single_characters(), EPOCHS)
        with whole_file(file) as aside:
            # Keras wants its own ending.
            weights = aside.with_name(f"{aside.name}.weights.h5")
            model.get_layer("glyph_cnn").save_weights(weights)
            weights.replace(aside)
    return file


def train_classifier(
    backbone: str, images: ImageSet, epochs: int, seed: int = 0
) -> keras.Model:
    """Trains a network of `LAYERS`, its layer `glyph_cnn`, as a classifier."""
    # Not before the seed of a recipe: it would draw other weights then.
    keras.utils.set_random_seed(seed)
    shape = images.images.shape[1:]
    model = keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Rescaling(**PIXELS),
            glyph_network(shape, backbone),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(images.num_classes),
        ]
    )
    batch = 64
    steps = len(images) // batch * epochs
    model.compile(
        keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(2e-3, steps)
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    with tqdm(total=epochs, desc="pretraining on single pictures") as bar:
        step = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: bar.update()
        )
        model.fit(
            images.images,
            images.labels,
            batch_size=batch,
            epochs=epochs,
            verbose=0,
            callbacks=[step],
        )
    return model
