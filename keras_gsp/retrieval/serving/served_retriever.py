"""The TensorFlow graphs of an export: decoding, embedding, searching."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from keras_gsp.data.crops import evaluation_window
from keras_gsp.data.decoding import cut_encoded, num_pixels
from keras_gsp.ops.neighbors import SPARE_CANDIDATES, rows_alike
from keras_gsp.ops.tensor import Tensor
from keras_gsp.retrieval.guarantee import RetrievalGuarantee
from keras_gsp.retrieval.index.exact import GalleryIndex
from keras_gsp.retrieval.index.neighbors import padding_of
from keras_gsp.retrieval.index.scann_index import ScannIndex, import_scann
from keras_gsp.retrieval.matching import MatchThreshold

# Status of an image.
OK = "ok"
UNREADABLE = "unreadable: not a whole JPEG, PNG, BMP or WebP image"
# Rows of the gallery that a batch of queries is compared with at once.
SHARD_ROWS = 2**16


class ServedGallery:
    """The variables of a gallery, and the searches that run on them."""

    def __init__(
        self,
        index: GalleryIndex,
        neighbors: int,
        match: MatchThreshold | None = None,
        guarantee: RetrievalGuarantee | None = None,
    ) -> None:
        gallery = index.gallery
        self._num_items = len(gallery)
        self.neighbors = min(neighbors, self._num_items)
        self.match = match
        self.guarantee = guarantee
        self.origin = gallery.origin
        rows = gallery.embeddings - self.origin
        rows, halves = rows_alike(rows, np.sum(np.square(rows), axis=1) / 2)
        arrays = {"rows": rows, "half_squares": halves, "origin": self.origin}
        for name in ("ids", "labels"):
            values = getattr(gallery, name)
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
        kept = {"match_threshold": match, "guarantee": guarantee}
        self.facts |= {k: v.get_config() for k, v in kept.items() if v}
        self.searches = {"search_exact": self.nearest}
        if isinstance(index, ScannIndex):
            self.searches["search_ann"] = self.near
            scann = import_scann()
            self._num_candidates = index.num_candidates
            searcher = index.built_with(scann.scann_ops.builder)
            self.variables["scann"] = searcher.serialize_to_module()
            self.facts["index_settings"] = index.settings

    def nearest(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
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
        return self._ordered(queries, indices, self.neighbors)

    def near(
        self, embeddings: Tensor, num_neighbors: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `nearest`, by ScaNN; infinity and -1 for none."""
        wanted = num_neighbors or self.neighbors
        queries = embeddings - self.origin
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
        return self._ordered(queries, indices, wanted)

    def described(
        self, distances: Tensor, indices: Tensor, is_read: Tensor
    ) -> dict[str, Tensor]:
        """Looks up ids and labels; an unreadable image has no neighbors."""
        is_found = (indices >= 0) & is_read[:, None]
        positions = tf.where(is_found, indices, 0)
        found = {}
        for name in ("ids", "labels"):
            values = tf.gather(self.variables[name], positions)
            nothing: Any = ""
            if values.dtype != tf.string:
                nothing = padding_of(np.zeros(0, values.dtype.as_numpy_dtype))
            found[name] = tf.where(is_found, values, nothing)
        if self.match is not None:
            found["is_match"] = is_found & (distances <= self.match.distance)
        distances = tf.where(is_found, distances, np.inf)
        if self.guarantee is not None:
            # As `set_sizes` and `is_covered` of the guarantee.
            is_inside = distances <= self.guarantee.radius
            is_known = distances[:, 0] <= self.guarantee.novelty_distance
            sizes = tf.where(is_known, _num_true(is_inside), 0)
            found["set_size"] = sizes
            found["is_covered"] = (sizes > 0) & ~is_inside[:, -1]
        return found | {"distances": distances, "counts": _num_true(is_found)}

    def _ordered(self, queries, indices, num_neighbors):
        """The nearest candidates by exact distance, then by index."""
        # Among equals, top_k takes the first: the lower index.
        indices = tf.sort(indices, axis=1)
        vectors = tf.gather(self.variables["rows"], tf.maximum(indices, 0))
        squares = tf.square(vectors - queries[:, None, :])
        distances = tf.sqrt(tf.reduce_sum(squares, axis=-1))
        distances = tf.where(indices < 0, np.inf, distances)
        nearness, order = tf.math.top_k(-distances, num_neighbors)
        return -nearness, tf.gather(indices, order, batch_dims=1)


def decoder(
    image_shape: tuple[int, int, int],
    crop_fraction: float | None,
    max_pixels: int,
    background: tuple[int, int, int],
) -> Any:
    """Decodes and cuts files as `gsp.data.evaluation_batches` does.

    Makes a `tf.function` of strings that returns images, uint8, black where
    unreadable, and status, `"ok"` or an error; leading axes are flattened.
    """
    cut = functools.partial(
        cut_encoded,
        size=image_shape[:2],
        window=evaluation_window(crop_fraction),
        channels=image_shape[2],
        max_pixels=max_pixels,
        background=background,
    )

    def decoded(image_bytes):
        contents = tf.reshape(image_bytes, [-1])
        with tf.device("/CPU:0"):
            nothing = tf.zeros(image_shape, "uint8")
            images, is_read = _each(cut, contents, nothing)
            status = tf.where(is_read, OK, UNREADABLE)
            # Headers are only read where an image could not be.
            status = tf.cond(
                tf.reduce_all(is_read),
                lambda: status,
                lambda: _too_large(contents, status, max_pixels),
            )
        return tf.ensure_shape(images, (None, *image_shape)), status

    spec = tf.TensorSpec(None, "string")
    return tf.function(decoded, input_signature=[spec], autograph=False)


def like_leading(
    answer: dict[str, Tensor], inputs: Tensor, num_own: int = 0
) -> dict[str, Tensor]:
    """Reshapes outputs (batch, ...) to the leading axes of the inputs.

    The last `num_own` axes of the inputs belong to one item.
    """
    shape = tf.shape(inputs)
    leading = shape[: tf.size(shape) - num_own]
    return {
        name: tf.reshape(value, tf.concat([leading, tf.shape(value)[1:]], 0))
        for name, value in answer.items()
    }


def _num_true(values):
    return tf.reduce_sum(tf.cast(values, "int32"), axis=1)


def _too_large(contents, status, max_pixels):
    """Replaces the status of images that were refused for their size."""
    pixels, is_read = _each(num_pixels, contents, tf.zeros([], "int64"))
    words = tf.strings.as_string(pixels)
    message = "too large: " + words + f" pixels, the limit is {max_pixels}"
    return tf.where(is_read & (pixels > max_pixels), message, status)


def _each(function, contents, nothing):
    """Maps each string; one that raises gives `nothing` and `False`.

    TensorFlow's decoders raise, which ends a whole batch. Inside a tf.data
    pipeline an element that raises can be dropped instead.
    """
    count = tf.size(contents, out_type="int64")
    elements = tf.data.Dataset.from_tensor_slices((tf.range(count), contents))
    mapped = elements.map(
        lambda place, content: (place, function(content)),
        num_parallel_calls=tf.data.AUTOTUNE,
    ).ignore_errors(log_warning=False)
    # One more element keeps the pipeline from being empty.
    last = tf.data.Dataset.from_tensors((count, nothing))
    mapped = mapped.concatenate(last).batch(count + 1)
    places, values = mapped.get_single_element()
    places, shape = places[:, None], tf.shape(values, "int64")
    shape = tf.concat([[count + 1], shape[1:]], 0)
    values = tf.scatter_nd(places, values, shape)
    is_mapped = tf.scatter_nd(places, tf.ones_like(places[:, 0]), [count + 1])
    return values[:-1], is_mapped[:-1] > 0
