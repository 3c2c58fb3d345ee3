"""The functions that a SavedModel serves, by the name of their signature."""

from typing import Any

from keras_gsp.retrieval.explanation import PrototypeParts
from keras_gsp.retrieval.serving.image_bytes import OK
from keras_gsp.retrieval.serving.served_encoder import like_leading


def encoder_signatures(served: Any) -> Any:
    """Embeds encoded images, uint8 pixels and float32 pixels.

    Args:
        served: `ServedEncoder`.

    Returns:
        A dict of `tf.function`s: `embed`, `embed_uint8`, `embed_float32`.
    """
    import tensorflow as tf

    @tf.function(input_signature=[_strings("image_bytes")])
    def embed(image_bytes):
        images, status = served.decoded(image_bytes)
        embedding = _where_read(served.embedded(images), status == OK)
        return {
            "embedding": like_leading(embedding, image_bytes),
            "status": like_leading(status, image_bytes),
        }

    signatures = {"embed": embed}
    for dtype in ("uint8", "float32"):

        def embed_pixels(images):
            embedding = served.embedded(images)
            return {"embedding": like_leading(embedding, images, num_own=3)}

        images = tf.TensorSpec(None, dtype, name="images")
        signatures[f"embed_{dtype}"] = tf.function(
            embed_pixels, input_signature=[images]
        )
    return signatures


def search_signatures(served: Any, gallery: Any) -> Any:
    """Finds the neighbours of encoded images.

    Args:
        served: `ServedEncoder`.
        gallery: `ServedGallery`.

    Returns:
        A dict of `tf.function`s: `search_exact`, and `search_ann` with ScaNN.
    """
    import tensorflow as tf

    def searching(search):
        def found(image_bytes):
            images, status = served.decoded(image_bytes)
            distances, indices = search(served.embedded(images))
            answer = gallery.described(distances, indices, status == OK)
            answer["status"] = status
            return {
                name: like_leading(value, image_bytes)
                for name, value in answer.items()
            }

        return tf.function(found, input_signature=[_strings("image_bytes")])

    signatures = {"search_exact": searching(gallery.nearest)}
    if gallery.has_ann:
        signatures["search_ann"] = searching(gallery.near)
    return signatures


def explain_signature(served: Any) -> Any:
    """Splits the similarity of two images into shares of prototypes.

    Args:
        served: `ServedEncoder`, of an encoder that `explain` takes.

    Returns:
        A `tf.function` of `query_bytes` and `neighbor_bytes`.

    Raises:
        ValueError: an encoder whose similarity has no such shares.
    """
    import tensorflow as tf

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
        dtype = served.encoder.inputs[0].dtype
        shares = parts.shares(
            tf.cast(queries, dtype), tf.cast(neighbors, dtype)
        )
        is_read = (query_status == OK) & (neighbor_status == OK)
        answer = {
            name: _where_read(value, is_read) for name, value in shares.items()
        }
        answer |= {
            "query_status": query_status,
            "neighbor_status": neighbor_status,
        }
        return {
            name: like_leading(value, query_bytes)
            for name, value in answer.items()
        }

    return explain


def _strings(name):
    import tensorflow as tf

    return tf.TensorSpec(None, tf.string, name=name)


def _where_read(values, is_read):
    """Zeros in place of what an unreadable image gave."""
    import tensorflow as tf

    rank = len(values.shape)
    mask = tf.reshape(is_read, [-1] + [1] * (rank - 1))
    return tf.where(mask, values, tf.zeros_like(values))
