"""Exports to SavedModels that embed and search encoded images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_count, check_interval
from keras_gsp.ops.neighbors import SPARE_CANDIDATES, rows_alike
from keras_gsp.retrieval.index.exact import GalleryIndex
from keras_gsp.retrieval.index.scann_index import ScannIndex, import_scann
from keras_gsp.retrieval.matching import checked_match
from keras_gsp.retrieval.serving.artefact_facts import (
    Canaries,
    exported_facts,
    write_facts,
)
from keras_gsp.retrieval.serving.graph_decoding import tf
from keras_gsp.retrieval.serving.served_encoder import OK, ServedEncoder
from keras_gsp.storage.whole import whole_folder

# Rows of the gallery that a batch of queries is compared with at once.
SHARD_ROWS = 2**16
# JSON has no infinity: the distance where there is no neighbor.
NO_DISTANCE = np.finfo("float32").max
# Larger integers lose digits in JSON and become strings.
LARGEST_IN_JSON = 2**53


def export_encoder(
    encoder: keras.Model,
    path: str | Path,
    *,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a SavedModel from encoded images to embeddings.

    It loads with TensorFlow alone. Its signature is `embed`, and
    `serving_default`: `image_bytes` (batch,), strings, JPEG, PNG, BMP or WebP
    files -> `embedding` (batch, embedding_size) and `status` (batch,). Images
    are turned upright (Exif) and cut by the `Preprocessing` of the encoder or
    the index, or to the central square; one of more pixels than its
    `max_pixels` is not decoded. An image whose
    status is not "ok" has an embedding of zeros and disturbs no other.

    Args:
        encoder: built Keras model, images (batch, height, width, channels) in
            [0, 255] to embeddings (or to a dict with `"embedding"`).
        path: folder to make.
        metadata: JSON values to add to `metadata.json`; the model card shows
            `"scores"`.
        overwrite: whether to replace an export at `path`.

    Raises:
        FileExistsError: `path` exists and `overwrite` is `False`.
        RuntimeError: another backend than TensorFlow.
        ValueError: an encoder without one image input, or with one of open
            size and no `Preprocessing`.

    Example:

    ```python
    import tempfile

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.export_encoder(encoder, f"{folder}/encoder")
    ```
    """
    served = ServedEncoder(encoder, is_exported=True)
    facts = exported_facts(served, metadata)
    _write_saved_model(served, None, facts, path, overwrite)


def export_retriever(
    encoder: keras.Model,
    index: GalleryIndex,
    path: str | Path,
    *,
    neighbors: int = 10,
    within: float | None = None,
    canaries: Mapping[Any, str | Path | bytes] | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a SavedModel from encoded images to their nearest neighbors.

    Beside `embed` of `export_encoder` it has the signature `search`, and
    `serving_default`: `image_bytes` (batch,) -> `ids`, `labels`, `distances`
    and, with the index's match threshold, `is_match`, all (batch, neighbors),
    `counts` and `status` (batch,). Row i has `counts[i]` neighbors and padding
    after them that JSON can hold: -1 or an empty string, and the largest
    distance of float32. Ids and labels are integers or strings as in the index;
    integers above 2^53 are strings.

    Of a `ScannIndex`, `search` is approximate and `search_exact` is exact; a
    process must `import scann` before it loads such a SavedModel.

    Args:
        encoder: as for `export_encoder`.
        index: `ExactIndex`, `FaissIndex` or `ScannIndex` of the encoder's
            embeddings.
        path: folder to make.
        neighbors: number of neighbors of a search, at least 1; a smaller
            gallery is returned as a whole.
        within: largest distance of a neighbor; `None`: any.
        canaries: image files, or their bytes, by the ids of their items; the
            export carries a dozen of them, and `verify_export` embeds them
            again.
        metadata: as for `export_encoder`.
        overwrite: as for `export_encoder`.

    Raises:
        RuntimeError: an empty index, or canaries that the encoder does not
            embed as the index holds them.
        ValueError: an index of another encoder or size, or that keeps no
            vectors in memory; a number out of its range; canaries that the
            index does not hold. Also all errors of `export_encoder`.

    Example:

    ```python
    import tempfile

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    images = np.random.default_rng(0).random((3, 4, 4, 3)) * 255
    data = images, ["cat", "cow", "dog"]
    index = gsp.retrieval.ExactIndex.from_encoder(encoder, data)
    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.export_retriever(encoder, index, f"{folder}/retriever")
    ```
    """
    check_count(neighbors=neighbors)
    if within is not None:
        check_interval("[0, inf)", within=within)
    if not isinstance(index, GalleryIndex):
        raise ValueError(
            "`index` must keep its vectors in memory: copy them into an "
            f"`ExactIndex`. Received: {type(index).__name__}."
        )
    index._check_filled()
    served = ServedEncoder(encoder, index, is_exported=True)
    if index.embedding_size != served.embedding_size:
        raise ValueError(
            "`index` must hold embeddings of the encoder's size, "
            f"{served.embedding_size}. Received: {index.embedding_size}."
        )
    checked_match(index.match, served.space)

    carried = None
    if canaries is not None:
        carried = Canaries.of(
            lambda x: served.embedded_bytes(tf.constant(x))[0].numpy(),
            index,
            canaries,
        )
    gallery = _ServedGallery(index, neighbors, within)
    facts = exported_facts(served, metadata) | gallery.facts
    _write_saved_model(served, gallery, facts, path, overwrite, carried)


def _write_saved_model(served, gallery, facts, path, overwrite, canaries=None):
    """Writes an encoder, and the search of a gallery, with their metadata."""
    module = tf.Module()
    # As TensorFlow's variables, for its tracking.
    module.encoder_variables = [v.value for v in served.encoder.variables]
    answers = {"embed": lambda rows, is_ok: {"embedding": rows}}
    if gallery is not None:
        module.gallery_variables = gallery.variables
        answers |= gallery.searches
    signatures = {name: _of_files(served, answers[name]) for name in answers}
    facts["signatures"] = sorted(signatures)
    default = "embed" if gallery is None else "search"
    signatures["serving_default"] = signatures[default]
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with whole_folder(path, overwrite=overwrite) as folder:
        tf.saved_model.save(module, str(folder), signatures, options)
        _forget_custom_gradients(folder / "saved_model.pb")
        if canaries:
            canaries.save(folder)
        write_facts(folder, facts)


def _forget_custom_gradients(file):
    """Leaves the gradients of a SavedModel to TensorFlow."""
    # A process that loads custom gradients never frees the model again;
    # without them each load warns of the operations that name one.
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for graph in saved.meta_graphs:
        for function in graph.graph_def.library.function:
            for node in function.node_def:
                node.attr.pop("_gradient_op_type", None)
    file.write_bytes(saved.SerializeToString(deterministic=True))


def _of_files(served, answer):
    """The `tf.function` from files to what `answer` says of embeddings."""

    def signature(image_bytes):
        rows, status = served.embedded_bytes(image_bytes)
        return answer(rows, status == OK) | {"status": status}

    # AutoGraph, which nothing here needs, doubles the time of tracing.
    spec = tf.TensorSpec([None], tf.string, name="image_bytes")
    return tf.function(signature, input_signature=[spec], autograph=False)


class _ServedGallery:
    """The variables of a gallery, and the searches that run on them.

    `searches` maps the name of a signature to a function from embeddings, and
    whether each is of an image, to the answer.
    """

    def __init__(self, index, neighbors, within):
        self._origin = index.gallery.origin
        self._augmentation, self._searched = index.augmentation, "rows"
        named, engine = {}, index
        if index._augmented is not None:
            *rounds, engine = index._augmented.rounds
            for number, one in enumerate(rounds):
                named[f"round{number}"] = one.items(engine.ids())[0]
            self._searched = "searched"
            named["searched"] = engine.gallery.embeddings
        gallery = engine.gallery
        named["rows"] = index.items(gallery.ids)[0] - self._origin
        self._num_items = len(gallery)
        self._neighbors = min(neighbors, self._num_items)
        self._match, self._within = index.match, within
        arrays = {
            "ids": _for_json(gallery.ids),
            "labels": _for_json(gallery.labels),
        }
        for name, rows in named.items():
            halves = np.sum(np.square(rows), axis=1) / 2
            arrays[name], arrays[f"halves of {name}"] = rows_alike(rows, halves)
        with tf.device("/CPU:0"):
            self.variables = {
                name: tf.Variable(values, trainable=False)
                for name, values in arrays.items()
            }
        self.facts: dict[str, Any] = {
            "gallery_size": self._num_items,
            "neighbors": self._neighbors,
        }
        if within is not None:
            self.facts["within"] = float(within)
        if self._augmentation is not None:
            self.facts["augmentation"] = self._augmentation.get_config()
        if self._match is not None:
            self.facts["match_threshold"] = self._match.get_config()
        self.searches = {"search": self._answered(self._nearest)}
        if isinstance(index, ScannIndex):
            scann = import_scann()
            self._num_candidates = index.num_candidates
            searcher = engine.built_with(scann.scann_ops.builder)
            self.variables["scann"] = searcher.serialize_to_module()
            self.facts["index_settings"] = engine.settings
            self.searches["search_exact"] = self.searches["search"]
            self.searches["search"] = self._answered(self._near_by_scann)

    def _answered(self, search):
        """From embeddings to the answer of a signature."""

        def answer(rows, is_ok):
            distances, indices = self._found(rows, search)
            is_neighbor = (indices >= 0) & is_ok[:, None]
            if self._within is not None:
                is_neighbor &= distances <= self._within
            if self._within is not None and self._augmentation is not None:
                # Distances need not rise: what is left comes first.
                order = tf.argsort(
                    tf.cast(~is_neighbor, "int32"), axis=1, stable=True
                )
                distances, indices, is_neighbor = (
                    tf.gather(values, order, batch_dims=1)
                    for values in (distances, indices, is_neighbor)
                )
            positions = tf.where(is_neighbor, indices, 0)
            outputs = {}
            for name in ("ids", "labels"):
                values = tf.gather(self.variables[name], positions)
                nothing: Any = "" if values.dtype == tf.string else -1
                outputs[name] = tf.where(is_neighbor, values, nothing)
            if self._match is not None:
                is_near = distances <= self._match.distance
                outputs["is_match"] = is_neighbor & is_near
            outputs["distances"] = tf.where(is_neighbor, distances, NO_DISTANCE)
            counts = tf.reduce_sum(tf.cast(is_neighbor, "int32"), axis=1)
            return outputs | {"counts": counts}

        return answer

    def _found(self, embeddings, search):
        """Distances and indices of neighbors, in their order."""
        queries = embeddings - self._origin
        if self._augmentation is None:
            return self._ordered("rows", queries, search(queries))
        expanded = self._expanded(embeddings)
        indices = search(expanded)
        indices = self._ordered("searched", expanded, indices)[1]
        return self._distances("rows", queries, indices), indices

    def _expanded(self, embeddings):
        """What is searched for: a product for each round of augmentation."""
        augmentation = self._augmentation
        first = rows = _unit(embeddings)
        for number in range(augmentation.rounds):
            name, count = f"round{number}", augmentation.num_neighbors
            count = min(count, self._num_items)
            vectors = tf.gather(
                self.variables[name], self._nearest(rows, name, count)
            )
            weights = tf.einsum("qs,qks->qk", rows, vectors)
            weights = tf.maximum(weights, 0.0) ** augmentation.power
            rows = _unit(rows + tf.einsum("qk,qks->qs", weights, vectors))
        if not augmentation.original_weight:
            return rows
        root = np.float32(np.sqrt(augmentation.original_weight))
        return tf.concat([rows, root * first], axis=1)

    def _nearest(self, queries, name=None, count=None):
        """Returns indices that hold the exact neighbors, in any order."""
        name = name or self._searched
        rows = self.variables[name]
        halves = self.variables[f"halves of {name}"]
        num_kept = count or self._neighbors + 1 + SPARE_CANDIDATES
        num_kept = min(num_kept, self._num_items)
        best, indices = [], []
        for start in range(0, rows.shape[0], SHARD_ROWS):
            shard = slice(start, start + SHARD_ROWS)
            # |q - r|^2 = |q|^2 - 2 (q.r - |r|^2 / 2)
            nearness = tf.matmul(queries, rows[shard], transpose_b=True)
            nearness -= halves[shard]
            top = tf.math.top_k(nearness, min(num_kept, nearness.shape[1]))
            best.append(top.values)
            indices.append(top.indices + start)
        chosen = tf.math.top_k(tf.concat(best, axis=1), num_kept).indices
        return tf.gather(tf.concat(indices, 1), chosen, batch_dims=1)

    def _near_by_scann(self, queries):
        """Returns indices that ScaNN finds, -1 for none."""
        scann, wanted = import_scann(), self._neighbors
        searcher = scann.scann_ops.searcher_from_module(self.variables["scann"])
        indices, distances = searcher.search_batched(
            queries if self._augmentation else queries + self._origin,
            final_num_neighbors=wanted,
            pre_reorder_num_neighbors=self._num_candidates(wanted),
        )
        indices = tf.where(tf.math.is_nan(distances), -1, indices)
        # ScaNN omits columns that no query fills.
        missing = wanted - tf.shape(indices)[1]
        indices = tf.pad(indices, [[0, 0], [0, missing]], constant_values=-1)
        return tf.ensure_shape(indices, (None, wanted))

    def _ordered(self, name, queries, indices):
        """The nearest candidates by exact distance, then by index."""
        # Among equals, top_k takes the first: the lower index.
        indices = tf.sort(indices, axis=1)
        distances = self._distances(name, queries, indices)
        nearness, order = tf.math.top_k(-distances, self._neighbors)
        return -nearness, tf.gather(indices, order, batch_dims=1)

    def _distances(self, name, queries, indices):
        """Distances of candidates, infinity for an index of -1."""
        vectors = tf.gather(self.variables[name], tf.maximum(indices, 0))
        distances = tf.norm(vectors - queries[:, None, :], axis=-1)
        return tf.where(indices < 0, np.inf, distances)


def _unit(rows):
    lengths = tf.norm(rows, axis=1, keepdims=True)
    return rows / tf.maximum(lengths, np.finfo("float32").tiny)


def _for_json(values):
    """Ids or labels as a SavedModel answers: strings or small integers."""
    if values.dtype.kind == "i":
        largest = max(abs(int(values.min())), abs(int(values.max())))
        if largest <= LARGEST_IN_JSON:
            return values.astype("int64")
    texts = [str(value) for value in values.tolist()]
    for text in texts:
        if text != text.encode(errors="replace").decode():
            raise ValueError(
                "Ids and labels of an export must be UTF-8. Received: "
                f"{text!a}. Rename it first."
            )
    return np.array(texts, object)
