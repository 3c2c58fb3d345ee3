"""Runs of untrained encoders on a folder of images, in a second."""

import json

import keras

import keras_gsp as gsp
from tests.training.datasets import layouts
from training.recipes.recipe import Recipe
from training.runs.run_directory import write_json

SIZE = 24


def image_folder(folder, classes=8, images=4):
    """Noise; two images of the last two classes are the same."""
    names = [f"class <{i}>" for i in range(classes)]
    layouts.folder(folder, names, images=images)
    return folder


def tiny_run(path, images, pooling="gsp", seed=0, with_scores=True):
    """A run directory with settings, history, scores and encoder."""
    recipe = Recipe.of(
        dataset="folder",
        data_dir=str(images),
        crop_size=SIZE,
        pooling=pooling,
        classes_per_batch=2,
        samples_per_class=2,
        train_classes=2,
        seed=seed,
    )
    path.mkdir(parents=True)
    write_json(path / "settings.json", {"recipe": recipe.settings})
    lines = [
        {"step": step, "seconds": 1.0, "loss": 1 / step, "val_map_at_r": 0.1}
        for step in (100, 200)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "history.jsonl").write_text(text)
    if with_scores:
        write_json(path / "scores.json", {"map_at_r": 0.5})
    keras.utils.set_random_seed(seed)
    layers = {
        "gsp": lambda: gsp.layers.GeneralizedSumPooling(5, name="pooling"),
        "gap": lambda: None,
    }
    encoder = gsp.models.build_encoder(
        keras.Sequential(
            [keras.Input((SIZE, SIZE, 3)), keras.layers.Conv2D(6, 3, strides=4)]
        ),
        embedding_size=6,
        pooling=layers[pooling](),
    )
    encoder.save(path / "encoder.keras")
    return path
