"""The gallery of an export: embeddings, names, and pictures to show."""

from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import whole_folder
from training.artefacts.gallery_files import write_pictures
from training.artefacts.portable_export import export_portable
from training.recipes.batches import evaluation_batches
from training.recipes.data import load_splits
from training.recipes.recipe import Recipe
from training.runs.scoring import embed


def export_gallery(
    command: Any, recipe: Recipe, encoder: Any, options: dict[str, Any]
) -> None:
    """Embeds a gallery and writes the export that searches it.

    Args:
        command: `ExportCommand`, with an index.
        recipe: The run's recipe.
        encoder: The run's encoder.
        options: Keyword arguments of `export_encoder`.
    """
    splits = load_splits(recipe)
    gallery = getattr(splits, command.split)
    held_out = None
    if command.split == "test" and splits.gallery is not None:
        gallery, held_out = splits.gallery, splits.query
    if command.images_per_class is not None:
        gallery = gallery.subset(_first_of_class(gallery, command))
    if command.index == "scann":
        if held_out is None:
            gallery, held_out = _without_some(gallery, command.held_out)
        options = options | {
            "held_out": _named_batches(recipe, held_out),
            "minimum_recall": command.minimum_recall,
            "below_minimum": "warn" if command.warn else "refuse",
        }
    kinds = {
        "exact": gsp.retrieval.ExactIndex,
        "scann": gsp.retrieval.ScannIndex,
    }
    ids = image_ids(gallery, command.split)
    index = kinds[command.index](
        embed(encoder, recipe, gallery), _class_names(gallery), ids
    )
    if command.false_accept_rate is not None:
        index.match = _threshold(command, recipe, encoder)
    if command.format != "saved_model":
        export_portable(command, recipe, encoder, options, splits, index)
        return
    overwrite = options["overwrite"]
    with whole_folder(command.target, overwrite=overwrite) as folder:
        gsp.retrieval.export_retriever(
            encoder,
            index,
            folder,
            neighbors=command.neighbors,
            **options | {"overwrite": True},
        )
        if gallery.images is not None:
            write_pictures(folder, gallery.images, ids)
            write_checksums(folder)


def _first_of_class(images, command):
    """The first images of each class, in the order they stand in."""
    order = np.argsort(images.labels, kind="stable")
    starts = np.cumsum(images.class_sizes) - images.class_sizes
    ranks = np.arange(len(order)) - starts[images.labels[order]]
    return np.sort(order[ranks < command.images_per_class])


def _threshold(command, recipe, encoder):
    """Calibrated on the validation classes, which were not trained on."""
    held_out = load_splits(recipe).validation
    return gsp.retrieval.MatchThreshold.calibrated(
        embed(encoder, recipe, held_out),
        held_out.labels,
        false_accept_rate=command.false_accept_rate,
    )


def image_ids(images: Any, split: str) -> np.ndarray:
    """File names of images on disk, `split/number` of those in memory."""
    if images.paths is not None:
        return np.array(images.paths)
    return np.array([f"{split}/{i}" for i in range(len(images))])


def _without_some(images, share):
    """Leaves a share of the images out, the same ones every time."""
    order = np.random.default_rng(0).permutation(len(images))
    count = max(1, round(share * len(images)))
    if count >= len(images):
        raise ValueError(
            "`held_out` must leave a gallery. "
            f"Received: held_out={share} of {len(images)} images."
        )
    return (
        images.subset(np.sort(order[count:])),
        images.subset(np.sort(order[:count])),
    )


def _class_names(images):
    return np.array(images.class_names)[images.labels]


def _named_batches(recipe, images):
    import tensorflow as tf

    names = tf.constant(images.class_names)
    batches = evaluation_batches(recipe, images)
    return batches.map(lambda pixels, rows: (pixels, tf.gather(names, rows)))
