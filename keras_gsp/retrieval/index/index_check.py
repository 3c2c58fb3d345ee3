"""The certificate of an index that is exported, and what follows from it."""

import warnings

import numpy as np

from keras_gsp.embeddings.encoding import encoded
from keras_gsp.embeddings.labelled_batches import LabelledBatches
from keras_gsp.retrieval.index.certificate import (
    index_certificate,
    ranking_depth,
)
from keras_gsp.retrieval.index.exact import ExactIndex


def measured_certificate(encoder, index, gallery, held_out):
    """Compares what is exported with exact search; see `index_certificate`.

    Args:
        encoder: Keras model, images to embeddings.
        index: `ScannIndex`.
        gallery: `ServedGallery` of it.
        held_out: images that are not in the gallery, with their labels.
    """
    batches = LabelledBatches(held_out, "held_out", 64)
    embeddings, labels = encoded(encoder, batches)
    embeddings = embeddings.astype("float32")
    depth = ranking_depth(labels, index.gallery.labels, gallery.neighbors)
    exact = ExactIndex()
    exact.gallery = index.gallery
    # A few hundred queries at a time: ScaNN's batches are held in memory.
    blocks = np.array_split(embeddings, -(-len(embeddings) // 256))
    near = [gallery.near(block, depth)[1].numpy() for block in blocks]
    return index_certificate(
        exact.search(embeddings, depth).indices,
        np.concatenate(near),
        labels,
        index.gallery.labels,
        gallery.neighbors,
    )


def check_minimum_recall(index, held_out, minimum_recall, below_minimum):
    """Raises `ValueError` for options that make no certificate."""
    if index.kind == "scann" and held_out is None:
        raise ValueError(
            "`held_out` must be given with a ScannIndex: images that are not "
            "in the gallery, to measure what the index misses. "
            "Received: held_out=None."
        )
    if not 0.0 <= minimum_recall <= 1.0:
        raise ValueError(
            "`minimum_recall` must be in [0, 1]. "
            f"Received: minimum_recall={minimum_recall}."
        )
    if below_minimum not in ("refuse", "warn"):
        raise ValueError(
            '`below_minimum` must be "refuse" or "warn". '
            f"Received: below_minimum={below_minimum!r}."
        )


def judge_certificate(certificate, minimum_recall, below_minimum):
    """Refuses, or warns of, an index that misses too many neighbours."""
    if certificate["recall"] >= minimum_recall:
        return
    message = (
        f"ScaNN must find {minimum_recall:.3f} of the true neighbours. "
        f"Received: {certificate['recall']:.3f} at k={certificate['k']}. Give "
        "the index more leaves to search or more candidates to reorder."
    )
    if below_minimum == "refuse":
        raise ValueError(message)
    warnings.warn(message, stacklevel=3)
