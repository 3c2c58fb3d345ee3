"""The signatures of an export: TensorFlow functions of files and pixels."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_gsp.retrieval.explanation import PrototypeParts
from keras_gsp.retrieval.serving.artefact_facts import write_facts
from keras_gsp.retrieval.serving.canaries import Canaries
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from keras_gsp.retrieval.serving.served_retriever import (
    OK,
    ServedGallery,
    like_leading,
)
from keras_gsp.storage.whole import whole_folder


@contextlib.contextmanager
def gradients_forgotten() -> Iterator[None]:
    """Frees the graphs that are traced inside.

    TensorFlow registers the gradient of every traced custom gradient for good,
    with its graph: 25 to 60 MB for each export of an encoder with
    `GeneralizedSumPooling`.
    """
    from tensorflow.python.framework import ops as framework

    registry = framework.gradient_registry._registry
    before = set(registry)
    try:
        yield
    finally:
        for name in set(registry) - before:
            if name.startswith("CustomGradient-"):
                registry.pop(name, None)


@gradients_forgotten()
def write_saved_model(
    served: ServedEncoder,
    gallery: ServedGallery | None,
    facts: dict[str, Any],
    path: str | Path,
    canaries: Canaries | None = None,
) -> None:
    """Writes an encoder, and the search of a gallery, with their metadata."""
    module = tf.Module()
    module.encoder_variables = served.variables
    signatures = _signatures(served, gallery)
    signatures["serving_default"] = signatures["embed"]
    if gallery is not None:
        module.gallery_variables = gallery.variables
        signatures["serving_default"] = signatures["search_exact"]
        try:
            signatures["explain"] = _explain_signature(served)
        except ValueError as error:
            facts["no_explain"] = str(error)
    facts["signatures"] = sorted(signatures)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with whole_folder(path, overwrite=served.overwrite) as folder:
        tf.saved_model.save(module, str(folder), signatures, options)
        _forget_custom_gradients(folder / "saved_model.pb")
        if canaries is not None:
            canaries.save(folder)
        write_facts(folder, facts)


def _forget_custom_gradients(file):
    """Leaves the gradients of a SavedModel to TensorFlow.

    A process that loads custom gradients never frees the model again; without
    them each load warns of the operations that name one.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for graph in saved.meta_graphs:
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                node.attr.pop("_gradient_op_type", None)
    file.write_bytes(saved.SerializeToString(deterministic=True))


def _signatures(served, gallery):
    """The `tf.function`s that embed files and pixels, and that search."""

    def of_files(answer):
        @tf.function(input_signature=[_strings("image_bytes")])
        def signature(image_bytes):
            images, status = served.decoded(image_bytes)
            found = answer(served.embedded(images), status == OK)
            return like_leading(found | {"status": status}, image_bytes)

        return signature

    def of_pixels(images):
        answer = {"embedding": served.embedded(images)}
        return like_leading(answer, images, num_own=3)

    def embedding(rows, is_read):
        return {"embedding": _where_read(rows, is_read)}

    signatures = {"embed": of_files(embedding)}
    for dtype in ("uint8", "float32"):
        spec = [tf.TensorSpec(None, dtype, name="images")]
        signatures[f"embed_{dtype}"] = tf.function(of_pixels, spec)
    for name, search in ({} if gallery is None else gallery.searches).items():
        signatures[name] = of_files(
            lambda rows, is_read, search=search: gallery.described(
                *search(rows), is_read
            )
        )
    return signatures


def _explain_signature(served):
    """The `tf.function` that explains pairs of files."""
    parts = PrototypeParts(served.encoder)

    @tf.function(
        input_signature=[_strings("query_bytes"), _strings("neighbor_bytes")]
    )
    def explain(query_bytes, neighbor_bytes):
        tf.debugging.assert_equal(
            tf.shape(query_bytes),
            tf.shape(neighbor_bytes),
            "`query_bytes` and `neighbor_bytes` must have the same shape.",
        )
        queries, query_status = served.decoded(query_bytes)
        neighbors, neighbor_status = served.decoded(neighbor_bytes)
        images = (tf.cast(x, served.dtype) for x in (queries, neighbors))
        shares = parts.shares(*images)
        is_read = (query_status == OK) & (neighbor_status == OK)
        answer = {
            name: _where_read(value, is_read) for name, value in shares.items()
        }
        status = "query_status", "neighbor_status"
        answer |= zip(status, (query_status, neighbor_status), strict=True)
        return like_leading(answer, query_bytes)

    return explain


def _strings(name):
    return tf.TensorSpec(None, tf.string, name=name)


def _where_read(values, is_read):
    """Replaces the outputs of unreadable images by zeros."""
    mask = tf.reshape(is_read, [-1] + [1] * (len(values.shape) - 1))
    return tf.where(mask, values, tf.zeros_like(values))
