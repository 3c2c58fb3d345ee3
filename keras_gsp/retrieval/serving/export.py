"""Exports to SavedModels that embed and search encoded images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_gsp.embeddings.labeled_batches import LabeledBatches, encoded
from keras_gsp.embeddings.labeled_embeddings import checked_labels
from keras_gsp.ops.arguments import check_count, check_interval
from keras_gsp.retrieval.guarantee import RetrievalGuarantee
from keras_gsp.retrieval.index.exact import GalleryIndex
from keras_gsp.retrieval.index.scann_index import ScannIndex
from keras_gsp.retrieval.index.search_recall import compared, positives_of
from keras_gsp.retrieval.matching import checked_match
from keras_gsp.retrieval.serving.artefact_facts import exported_facts
from keras_gsp.retrieval.serving.canaries import Canaries
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from keras_gsp.retrieval.space import check_same_space


def export_encoder(
    encoder: keras.Model, path: str | Path, **options: Any
) -> None:
    """Writes a SavedModel from encoded images, or pixels, to embeddings.

    It loads with TensorFlow alone. Signatures:

    - `serving_default` and `embed`: `image_bytes`, JPEG, PNG, BMP or WebP
      files as strings -> `embedding`, `status`. Images are turned upright
      (Exif) and cropped as by `gsp.data.evaluation_batches`; an unreadable
      one gets the status "unreadable: ..." and zeros.
    - `embed_uint8`, `embed_float32`: `images`, pixels in [0, 255] of the
      encoder's size -> `embedding`.

    Inputs are a single image or a batch of any shape; outputs have the same
    leading shape.

    Args:
        encoder: built Keras model, images (batch, height, width, channels)
            with values in [0, 255] to embeddings (or to a dict with
            `"embedding"`).
        path: folder to make.
        **options: the options of all exports:
            `image_size`, side of the images in pixels, or (height, width);
            default `None`: as the encoder's input or preprocessing.
            `crop_fraction`, side of the centered square to crop, as a
            fraction of the shorter side, in (0, 1]; `None` resizes the whole
            image; default `"auto"`: as the encoder expects
            (`gsp.data.preprocessing_of`), or as the gallery of the index was
            cropped; 1.0 if neither is known.
            `max_pixels`, largest number of pixels of an encoded image; a
            larger one is not decoded and gets the status "too large: ...";
            default 50 million.
            `truncate_to`, number of leading coordinates to serve; see
            `gsp.models.truncate_encoder`; default `None`: all.
            `metadata`, JSON values to add to `metadata.json`; the model card
            shows `"scores"`, `"recipe"` and `"intended_use"`; default `None`.
            `overwrite`, whether to replace what is at `path`; default
            `False`.

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

    encoder = keras.Sequential([
        keras.Input((32, 32, 3)), keras.layers.Flatten()
    ])
    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.export_encoder(encoder, f"{folder}/encoder")
    ```
    """
    served = ServedEncoder(encoder, **options)
    from keras_gsp.retrieval.serving.signatures import write_saved_model

    write_saved_model(served, None, exported_facts(served), path)


def export_retriever(
    encoder: keras.Model,
    index: GalleryIndex,
    path: str | Path,
    *,
    neighbors: int = 10,
    held_out: Any = None,
    minimum_recall: float = 0.95,
    guarantee: RetrievalGuarantee | None = None,
    canaries: Mapping[Any, str | Path | bytes] | None = None,
    **options: Any,
) -> None:
    """Writes a SavedModel from encoded images to their nearest neighbors.

    Signatures, in addition to those of `export_encoder`:

    - `serving_default` and `search_exact`: `image_bytes` -> `ids`, `labels`
      (integers or strings, as in the index), `distances`, `counts`, `status`,
      `is_match` with the index's match threshold, `set_size` and `is_covered`
      with a guarantee. A row holds `counts` neighbors and padding after them:
      -1 or empty strings, and infinity.
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
            gallery is returned as a whole. Default 10.
        held_out: images that are not in the gallery, a data set or a tuple
            (images, labels), to measure the recall of a `ScannIndex`, which
            needs them. Default `None`.
        minimum_recall: share of the true neighbors that ScaNN must find, in
            [0, 1]; below it nothing is written. Default 0.95.
        guarantee: `RetrievalGuarantee` of the encoder; searches then return
            `set_size`, the length of the shortlist, 0 for a declined query,
            and `is_covered`, whether `neighbors` were enough for all of it.
            Default `None`.
        canaries: image files, or their bytes, by the ids of their items; the
            export carries a dozen of them, and `verify_export` embeds them
            again. Default `None`: none.
        **options: as for `export_encoder`; `truncate_to` is the size of the
            index.

    Raises:
        RuntimeError: an empty index, or canaries that the encoder does not
            embed as the index holds them.
        ValueError: an index of another encoder or size, or that keeps no
            vectors in memory; a number out of its range; a recall below the
            minimum; no held-out images for a `ScannIndex`; canaries that the
            index does not hold. Also all errors of `export_encoder`.

    Example:

    ```python
    import tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    images = np.random.default_rng(0).random((6, 32, 32, 3)) * 255
    encoder = keras.Sequential([
        keras.Input((32, 32, 3)), keras.layers.Flatten()
    ])
    index = gsp.retrieval.ExactIndex.from_encoder(
        encoder, (images, ["cat", "cat", "cow", "cow", "dog", "dog"])
    )
    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.export_retriever(encoder, index, f"{folder}/retriever")
    ```
    """
    check_interval("[0, 1]", minimum_recall=minimum_recall)
    check_count(neighbors=neighbors)
    _check_index(index, held_out)
    served = ServedEncoder(encoder, index, **options)
    if index.embedding_size != served.embedding_size:
        raise ValueError(
            "`index` must hold embeddings of the encoder's size, "
            f"{served.embedding_size}. Received: {index.embedding_size}."
        )
    match = checked_match(index.match, served.space)
    if guarantee is not None:
        check_same_space(guarantee.space, served.space, "guarantee")
    from keras_gsp.retrieval.serving import served_retriever, signatures

    carried = None if canaries is None else Canaries.of(served, index, canaries)
    gallery = served_retriever.ServedGallery(index, neighbors, match, guarantee)
    facts = exported_facts(served) | gallery.facts
    if len(gallery.searches) > 1:
        measured = _measured(served.encoder, index, gallery, held_out)
        facts["search_recall"] = measured
        if measured["recall"] < minimum_recall:
            raise ValueError(
                f"ScaNN must find {minimum_recall:.3f} of the true neighbors. "
                f"Received: {measured['recall']:.3f} at k={measured['k']}. "
                "Give it more leaves to search or candidates to reorder."
            )
    signatures.write_saved_model(served, gallery, facts, path, carried)


def _check_index(index, held_out):
    if not isinstance(index, GalleryIndex):
        raise ValueError(
            "`index` must keep its vectors in memory: copy them into an "
            f"`ExactIndex`. Received: {type(index).__name__}."
        )
    index._check_filled()
    if held_out is None and isinstance(index, ScannIndex):
        raise ValueError(
            "`held_out` must be images that are not in the gallery: they "
            "measure the recall of a ScannIndex. Received: held_out=None."
        )


def _measured(encoder, index, gallery, held_out):
    """The recall of the approximate search inside the graph."""
    batches = LabeledBatches(held_out, "held_out", 64)
    embeddings, labels = encoded(encoder, batches)
    embeddings = embeddings.astype("float32")
    labels = checked_labels(labels, len(embeddings))
    num_positives = positives_of(index, labels)
    depth = min(max(gallery.neighbors, int(num_positives.max())), len(index))
    # A few hundred queries at a time: ScaNN keeps a batch in memory.
    blocks = np.array_split(embeddings, -(-len(embeddings) // 256))
    near = [gallery.near(block, depth) for block in blocks]
    distances, indices = (
        np.concatenate([answer[i].numpy() for answer in near]) for i in (0, 1)
    )
    return compared(
        index.search_exactly(embeddings, depth),
        index._neighbors_at(distances, indices, depth),
        labels,
        num_positives,
        gallery.neighbors,
    )
