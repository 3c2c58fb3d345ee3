"""Exports to ONNX and LiteRT, with the scores that the file itself reaches."""

from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp.embeddings.labeled_batches import embedding_of
from training.datasets.image_set import RetrievalSplits
from training.recipes.batches import evaluation_batches
from training.recipes.recipe import Recipe

# Real images on which a file is compared with Keras.
SAMPLES = 32


def export_portable(
    command: Any,
    recipe: Recipe,
    encoder: Any,
    options: dict[str, Any],
    splits: RetrievalSplits,
    index: Any = None,
) -> None:
    """Writes an encoder as ONNX or LiteRT and measures what it lost.

    MAP@R is measured twice on the same images, with Keras and with the file:
    once to know the numbers, once more to write them beside it.

    Args:
        command: `ExportCommand` with `format` "onnx" or "litert".
        recipe: The run's recipe.
        encoder: The run's encoder.
        options: Keyword arguments of `export_encoder`.
        splits: The recipe's data.
        index: Index of the gallery; None writes none.
    """
    images = getattr(splits, command.split)
    batches = [pixels.numpy() for pixels, _ in _batches(recipe, images)]
    export = gsp.retrieval.export_onnx
    if command.format == "litert":
        export = gsp.retrieval.export_litert
        options = options | {"quantization": command.quantization}
    options = options | {"index": index, "sample_images": batches[0][:SAMPLES]}
    export(encoder, command.target, **options)
    portable = gsp.retrieval.PortableEncoder(command.target)
    found = np.concatenate([portable.embed(pixels) for pixels in batches])
    expected = np.concatenate(
        [embedding_of(encoder.predict_on_batch(pixels)) for pixels in batches]
    )
    metadata = options["metadata"] | {
        "map_at_r_of_keras": _map_at_r(expected, images.labels),
        "map_at_r_of_format": _map_at_r(found, images.labels),
    }
    options = options | {"metadata": metadata, "overwrite": True}
    export(encoder, command.target, **options)


def _batches(recipe, images):
    return evaluation_batches(recipe, images)


def _map_at_r(embeddings, labels):
    scores = gsp.metrics.retrieval_scores(embeddings, labels)
    return float(scores["map_at_r"])
