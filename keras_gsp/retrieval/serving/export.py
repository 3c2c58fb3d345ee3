"""Exports to SavedModels that embed, search and explain encoded images."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_count
from keras_gsp.ops.neighbors import SPARE_CANDIDATES, rows_alike
from keras_gsp.retrieval.explanation import PrototypeParts
from keras_gsp.retrieval.index.exact import GalleryIndex
from keras_gsp.retrieval.index.neighbors import padding_of
from keras_gsp.retrieval.index.scann_index import ScannIndex, import_scann
from keras_gsp.retrieval.index.where import check_columns
from keras_gsp.retrieval.matching import checked_match
from keras_gsp.retrieval.serving.artefact_facts import (
    exported_facts,
    write_facts,
)
from keras_gsp.retrieval.serving.canaries import Canaries
from keras_gsp.retrieval.serving.graph_decoding import tf
from keras_gsp.retrieval.serving.served_encoder import (
    OK,
    ServedEncoder,
    like_leading,
)
from keras_gsp.storage.whole import whole_folder

# Rows of the gallery that a batch of queries is compared with at once.
SHARD_ROWS = 2**16


def export_encoder(
    encoder: keras.Model, path: str | Path, **options: Any
) -> None:
    """Writes a SavedModel from encoded images, or pixels, to embeddings.

    It loads with TensorFlow alone. Signatures:

    - `serving_default` and `embed`: `image_bytes`, JPEG, PNG, BMP or WebP
      files as strings -> `embedding`, `status`. Images are turned upright
      (Exif) and cropped as by `gsp.data.image_batches`; an unreadable
      one gets the status "unreadable: ..." and zeros.
    - `embed_uint8`, `embed_float32`: `images`, pixels in [0, 255] of the
      encoder's size -> `embedding`.
    - `boxes`, of a `TwoLooks`: `image_bytes` -> `boxes`, `status`.

    Inputs are a single image or a batch of any shape; outputs have the same
    leading shape.

    Args:
        encoder: built Keras model, images (batch, height, width, channels) in
            [0, 255] to embeddings (or to a dict with `"embedding"`).
        path: folder to make.
        **options: the options of all exports:
            `image_size`, side of the images in pixels, or (height, width);
            `None`: as the encoder's input or preprocessing.
            `crop_fraction`, side of the centered square to crop over the
            shorter side, in (0, 1]; `None`: no crop; default `"auto"`: as the
            encoder expects, or as the gallery was cropped, or 1.0.
            `max_pixels`, largest number of pixels of a file (50 million); a
            larger one is not decoded and gets the status "too large: ...".
            `truncate_to`, number of leading coordinates to serve; see
            `gsp.models.truncate_encoder`.
            `metadata`, JSON values to add to `metadata.json`; the model card
            shows `"scores"`, `"recipe"` and `"intended_use"`.
            `overwrite`, whether to replace what is at `path`.

    Raises:
        FileExistsError: `path` exists and `overwrite` is `False`.
        RuntimeError: another backend than TensorFlow.
        TypeError: an unknown option.
        ValueError: an encoder without one image input; a size or a fraction
            out of its range, or not that of encoder or index.

    Example:

    ```python
    import tempfile
    import keras
    import keras_gsp as gsp

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.export_encoder(encoder, f"{folder}/encoder")
    ```
    """
    served = ServedEncoder(encoder, **options)
    _write_saved_model(served, None, exported_facts(served), path)


def export_retriever(
    encoder: keras.Model,
    index: GalleryIndex,
    path: str | Path,
    *,
    neighbors: int = 10,
    group_by: str | None = None,
    canaries: Mapping[Any, str | Path | bytes] | None = None,
    **options: Any,
) -> None:
    """Writes a SavedModel from encoded images to their nearest neighbors.

    Signatures, in addition to those of `export_encoder`:

    - `serving_default` and `search_exact`: `image_bytes` -> `ids`, `labels`
      (integers or strings, as in the index), `distances`, `counts`, `status`,
      `is_match` with the index's match threshold. A row holds `counts`
      neighbors and padding after them: -1 or empty strings, and infinity.
    - `search_boxes`: `image_bytes` and `boxes`, (..., 4): the part of each
      upright image to search with, x, y, width and height in pixels; zeros
      for all of it -> as `search_exact`.
    - `items`, with `group_by`: `image_bytes` -> as `search_exact`, of the
      nearest image of each of `neighbors` groups, with `groups` and
      `group_counts`; see `ExactIndex.search`.
    - `search_ann`, with a `ScannIndex`: the same, found by ScaNN. A process
      must `import scann` before it loads such a SavedModel.
    - `explain`, for an encoder with `GeneralizedSumPooling`: `query_bytes`,
      `neighbor_bytes` -> the fields of `Explanation`, `query_status` and
      `neighbor_status`.

    Args:
        encoder: as for `export_encoder`.
        index: `ExactIndex`, `FaissIndex` or `ScannIndex` of the encoder's
            embeddings.
        path: folder to make.
        neighbors: number of neighbors of a search, at least 1; a smaller
            gallery is returned as a whole.
        group_by: `"label"` or the name of an attribute of the index, such as
            a product, whose groups `items` finds.
        canaries: image files, or their bytes, by the ids of their items; the
            export carries a dozen of them, and `verify_export` embeds them
            again.
        **options: as for `export_encoder`; `truncate_to` is the size of the
            index.

    Raises:
        RuntimeError: an empty index, or canaries that the encoder does not
            embed as the index holds them.
        ValueError: an index of another encoder or size, or that keeps no
            vectors in memory; a number out of its range; canaries that the
            index does not hold; an unknown column. Also all errors of
            `export_encoder`.

    Example:

    ```python
    import tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    images = np.random.default_rng(0).random((3, 4, 4, 3)) * 255
    data = images, ["cat", "cow", "dog"]
    index = gsp.retrieval.ExactIndex.from_encoder(encoder, data)
    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.export_retriever(encoder, index, f"{folder}/retriever")
    ```
    """
    check_count(neighbors=neighbors)
    if not isinstance(index, GalleryIndex):
        raise ValueError(
            "`index` must keep its vectors in memory: copy them into an "
            f"`ExactIndex`. Received: {type(index).__name__}."
        )
    index._check_filled()
    served = ServedEncoder(encoder, index, **options)
    if index.embedding_size != served.embedding_size:
        raise ValueError(
            "`index` must hold embeddings of the encoder's size, "
            f"{served.embedding_size}. Received: {index.embedding_size}."
        )
    match = checked_match(index.match, served.space)
    carried = None if canaries is None else Canaries.of(served, index, canaries)
    gallery = _ServedGallery(index, neighbors, match, group_by)
    facts = exported_facts(served) | gallery.facts
    _write_saved_model(served, gallery, facts, path, carried)


@contextlib.contextmanager
def gradients_forgotten() -> Iterator[None]:
    """Frees the graphs that TensorFlow traces inside.

    It registers the gradient of every traced custom gradient for good, with
    its graph: 25 to 60 MB for each export of `GeneralizedSumPooling`.
    """
    if keras.backend.backend() != "tensorflow":
        yield
        return
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
def _write_saved_model(served, gallery, facts, path, canaries=None):
    """Writes an encoder, and the search of a gallery, with their metadata."""
    module = tf.Module()
    # As TensorFlow's variables, for its tracking.
    module.encoder_variables = [v.value for v in served.encoder.variables]
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


def _signatures(served, gallery):
    """The `tf.function`s that embed files and pixels, and that search."""

    def of_files(answer, *more, model=None):
        def signature(image_bytes, *boxes):
            rows, status = served.embedded_bytes(
                image_bytes, *boxes, model=model
            )
            found = answer(rows, status == OK)
            return like_leading(found | {"status": status}, image_bytes)

        return _traced(signature, _strings("image_bytes"), *more)

    def of_pixels(images):
        answer = {"embedding": served.embedded(images)}
        return like_leading(answer, images, num_own=3)

    def named(name):
        return lambda rows, is_read: {name: _where_read(rows, is_read)}

    signatures = {"embed": of_files(named("embedding"))}
    if served.looks is not None:
        signatures["boxes"] = of_files(named("boxes"), model=served.looks)
    for dtype in ("uint8", "float32"):
        spec = tf.TensorSpec(None, dtype, name="images")
        signatures[f"embed_{dtype}"] = _traced(of_pixels, spec)
    for name, search in ({} if gallery is None else gallery.searches).items():

        def answer(rows, is_read, search=search):
            return gallery.described(is_read, *search(rows))

        signatures[name] = of_files(answer)
        if name == "search_exact":
            boxes = tf.TensorSpec(None, name="boxes")
            signatures["search_boxes"] = of_files(answer, boxes)
    return signatures


def _traced(function, *specs):
    """A signature. AutoGraph, which nothing here needs, doubles its time."""
    return tf.function(function, input_signature=specs, autograph=False)


def _explain_signature(served):
    """The `tf.function` that explains pairs of files."""
    parts = PrototypeParts(served.encoder)
    if None in served.image_shape:
        raise ValueError("Images of their own size are not explained.")

    def decoded(files):
        files = tf.reshape(files, [-1])
        return served.decoded(files, tf.zeros([tf.size(files), 4]))

    def explain(query_bytes, neighbor_bytes):
        tf.debugging.assert_equal(
            tf.shape(query_bytes),
            tf.shape(neighbor_bytes),
            "`query_bytes` and `neighbor_bytes` must have the same shape.",
        )
        queries, query_status = decoded(query_bytes)
        neighbors, neighbor_status = decoded(neighbor_bytes)
        images = (tf.cast(x, served.dtype) for x in (queries, neighbors))
        shares = parts.shares(*images)
        is_read = (query_status == OK) & (neighbor_status == OK)
        answer = {k: _where_read(v, is_read) for k, v in shares.items()}
        answer["query_status"] = query_status
        answer["neighbor_status"] = neighbor_status
        return like_leading(answer, query_bytes)

    names = "query_bytes", "neighbor_bytes"
    return _traced(explain, *map(_strings, names))


def _strings(name):
    return tf.TensorSpec(None, tf.string, name=name)


def _where_read(values, is_read):
    """Replaces the outputs of unreadable images by zeros."""
    mask = tf.reshape(is_read, [-1] + [1] * (len(values.shape) - 1))
    return tf.where(mask, values, tf.zeros_like(values))


class _ServedGallery:
    """The variables of a gallery, and the searches that run on them."""

    def __init__(self, index, neighbors, match, group_by):
        gallery = index.gallery
        self._num_items = len(gallery)
        self.neighbors = min(neighbors, self._num_items)
        self.match = match
        self.origin = gallery.origin
        rows = gallery.embeddings - self.origin
        rows, halves = rows_alike(rows, np.sum(np.square(rows), axis=1) / 2)
        arrays = {"rows": rows, "half_squares": halves, "origin": self.origin}
        columns = {"ids": gallery.ids, "labels": gallery.labels}
        if group_by is not None:
            check_columns([group_by], gallery.columns, "group_by")
            columns["groups"] = gallery.columns[group_by]
            found = np.unique(columns["groups"], return_inverse=True)
            arrays["codes"] = found[1]
        for name, values in columns.items():
            is_text = values.dtype.kind == "U"
            arrays[name] = values.astype(object) if is_text else values
        with tf.device("/CPU:0"):
            self.variables = {
                name: tf.Variable(values, trainable=False)
                for name, values in arrays.items()
            }
        self.facts: dict[str, Any] = {
            "gallery_size": len(index),
            "neighbors": self.neighbors,
        }
        if match is not None:
            self.facts["match_threshold"] = match.get_config()
        self.searches = {"search_exact": self.nearest}
        if group_by is not None:
            self.searches["items"] = self.nearest_groups
            self.facts["group_by"] = group_by
        if isinstance(index, ScannIndex):
            self.searches["search_ann"] = self.near
            scann = import_scann()
            self._num_candidates = index.num_candidates
            searcher = index.built_with(scann.scann_ops.builder)
            self.variables["scann"] = searcher.serialize_to_module()
            self.facts["index_settings"] = index.settings

    def nearest_groups(self, embeddings):
        """Returns exact distances, indices and counts of the first groups."""
        rows = self.variables["rows"][: self._num_items]

        def found(query):
            distances = tf.norm(rows - query, axis=1)
            order = tf.argsort(distances, stable=True)
            codes = tf.gather(self.variables["codes"], order)
            # Where each group comes first, and the groups that come first.
            first = tf.math.unsorted_segment_min(
                tf.range(self._num_items), codes, tf.reduce_max(codes) + 1
            )
            first = tf.sort(first)[: self.neighbors]
            shown = tf.gather(codes, first)[:, None] == codes[: first[-1] + 1]
            indices = tf.gather(order, first)
            return tf.gather(distances, indices), indices, _num_true(shown)

        shapes = "float32", "int32", "int32"
        return tf.map_fn(
            found,
            embeddings - self.origin,
            fn_output_signature=shapes,
            parallel_iterations=1,  # so many copies of the gallery
        )

    def nearest(self, embeddings):
        """Returns exact distances and indices, (batch, neighbors)."""
        queries = embeddings - self.origin
        rows, halves = self.variables["rows"], self.variables["half_squares"]
        num_kept = min(self.neighbors + 1 + SPARE_CANDIDATES, self._num_items)
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
        indices = tf.gather(tf.concat(indices, 1), chosen, batch_dims=1)
        return self._ordered(queries, indices)

    def near(self, embeddings):
        """As `nearest`, by ScaNN; infinity and -1 for none."""
        wanted = self.neighbors
        scann = import_scann()
        searcher = scann.scann_ops.searcher_from_module(self.variables["scann"])
        indices, distances = searcher.search_batched(
            embeddings,
            final_num_neighbors=wanted,
            pre_reorder_num_neighbors=self._num_candidates(wanted),
        )
        indices = tf.where(tf.math.is_nan(distances), -1, indices)
        # ScaNN omits columns that no query fills.
        missing = wanted - tf.shape(indices)[1]
        indices = tf.pad(indices, [[0, 0], [0, missing]], constant_values=-1)
        indices = tf.ensure_shape(indices, (None, wanted))
        return self._ordered(embeddings - self.origin, indices)

    def described(self, is_read, distances, indices, *counts):
        """Looks up ids and labels; an unreadable image has no neighbors."""
        is_found = (indices >= 0) & is_read[:, None]
        positions = tf.where(is_found, indices, 0)
        found, names = {}, ["ids", "labels"]
        for one in counts:  # of groups
            names.append("groups")
            found["group_counts"] = tf.where(is_found, one, 0)
        for name in names:
            values = tf.gather(self.variables[name], positions)
            nothing: Any = ""
            if values.dtype != tf.string:
                nothing = padding_of(np.zeros(0, values.dtype.as_numpy_dtype))
            found[name] = tf.where(is_found, values, nothing)
        if self.match is not None:
            found["is_match"] = is_found & (distances <= self.match.distance)
        distances = tf.where(is_found, distances, np.inf)
        return found | {"distances": distances, "counts": _num_true(is_found)}

    def _ordered(self, queries, indices):
        """The nearest candidates by exact distance, then by index."""
        # Among equals, top_k takes the first: the lower index.
        indices = tf.sort(indices, axis=1)
        vectors = tf.gather(self.variables["rows"], tf.maximum(indices, 0))
        squares = tf.square(vectors - queries[:, None, :])
        distances = tf.sqrt(tf.reduce_sum(squares, axis=-1))
        distances = tf.where(indices < 0, np.inf, distances)
        nearness, order = tf.math.top_k(-distances, self.neighbors)
        return -nearness, tf.gather(indices, order, batch_dims=1)


def _num_true(values):
    return tf.reduce_sum(tf.cast(values, "int32"), axis=1)
