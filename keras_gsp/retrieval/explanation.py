"""Contributions of prototypes and positions to a similarity."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_same_size
from keras_gsp._compat import operation_of
from keras_gsp._encoding import embedding_tensor, input_of
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import at_least_float32


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Contributions to the similarity of queries and neighbors; NumPy arrays.

    Attributes:
        similarity: (pairs,), inner product of the two embeddings; their
            cosine for an encoder that normalizes to the unit sphere.
        contributions: (pairs, num_prototypes), contribution of each prototype
            to the similarity, the mean of that in query and neighbor; sums to
            `similarity`.
        query_maps: (pairs, height, width, num_prototypes) or (pairs, tokens,
            num_prototypes), the share of each position that moves to each
            prototype; their sums over prototypes are the query's pooling
            weights. `neighbor_maps`: the neighbor's.
    """

    similarity: np.ndarray
    contributions: np.ndarray
    query_maps: np.ndarray
    neighbor_maps: np.ndarray


def explain(
    encoder: keras.Model, queries: Tensor, neighbors: Tensor
) -> Explanation:
    r"""Splits the similarity of two images over prototypes and positions.

    The embedding of an encoder that ends in `GeneralizedSumPooling` and a
    normalization is a sum over prototypes,

    .. math:: x = \sum_i x_i, \quad x_i = \frac{1}{\mu} \sum_j \pi_{ij} f_j,
              \quad e = x / c(x), \qquad
              \langle e, e' \rangle
              = \sum_{i, i'} \frac{\langle x_i, x'_{i'} \rangle}{c(x) c(x')}

    with features :math:`f_j`, transport plan :math:`\pi`, its ratio :math:`\mu`
    and c the norm (`"l2"`), the larger of the norm and 1 (`"ball"`) or 1.

    Args:
        encoder: functional model as `build_encoder` makes it, with a
            `GeneralizedSumPooling` of `power=1`.
        queries: (pairs, height, width, channels), the encoder's images.
        neighbors: (pairs, height, width, channels), one for each query.

    Raises:
        ValueError: another encoder; a different number of queries and
            neighbors.

    Example:

    ```python
    encoder = keras.Sequential([
        keras.Input((8, 8, 3)), gsp.layers.GeneralizedSumPooling(4)
    ])
    images = np.random.default_rng(0).random((2, 8, 8, 3))
    shares = gsp.retrieval.explain(encoder, images[:1], images[1:])
    np.testing.assert_allclose(
        shares.contributions.sum(axis=1), shares.similarity, rtol=1e-5
    )
    ```
    """
    if not getattr(encoder, "inputs", None):
        raise ValueError(
            "`encoder` must be a functional Keras model. "
            f"Received: {type(encoder).__name__}."
        )
    queries, neighbors = map(ops.convert_to_tensor, (queries, neighbors))
    check_same_size(queries, neighbors, ("queries", "neighbors"))
    embedding = embedding_tensor(encoder)
    pooling, pooled = _pooling_before(embedding)
    model = keras.Model(input_of(encoder), [pooling.input, pooled, embedding])
    first, parts, maps = _parts(model, pooling, queries)
    second, other_parts, other_maps = _parts(model, pooling, neighbors)
    # Of each prototype with all of the other image, whose parts sum to it.
    rows = ops.sum(parts * second[:, None], axis=2)
    columns = ops.sum(other_parts * first[:, None], axis=2)
    shares = {
        "similarity": ops.sum(first * second, axis=1),
        "contributions": (rows + columns) / 2,
        "query_maps": maps,
        "neighbor_maps": other_maps,
    }
    return Explanation(**keras.tree.map_structure(ops.convert_to_numpy, shares))


def _parts(model, pooling, images):
    """Embeddings, their parts by prototype, and maps."""
    outputs = model(images, training=False)
    features, pooled, embedding = map(at_least_float32, outputs)
    maps = pooling.transport_plan(features) / pooling.ratio
    flat_maps, flat = (
        ops.reshape(values, (ops.shape(maps)[0], -1, values.shape[-1]))
        for values in (maps, features)
    )
    parts = ops.matmul(ops.swapaxes(flat_maps, 1, 2), flat)
    # embedding = pooled / c, wherever pooled is not zero.
    squares = ops.sum(pooled * pooled, axis=1)
    is_zero = squares == 0.0
    scale = ops.sum(embedding * pooled, axis=1)
    scale = scale / ops.where(is_zero, ops.ones_like(squares), squares)
    return embedding, parts * scale[:, None, None], maps


def _pooling_before(embedding):
    """The pooling before the embedding or its normalization, and its output."""
    tensor, layer = embedding, operation_of(embedding)
    if hasattr(layer, "normalization") or (
        isinstance(layer, keras.layers.UnitNormalization)
        and layer.axis in (-1, 1)
    ):
        tensor = layer.input
        layer = operation_of(tensor)
    if not hasattr(layer, "transport_plan"):
        raise ValueError(
            "`encoder` must end in GeneralizedSumPooling and at most a "
            "normalization: only then do contributions add up (of a "
            "`TwoLooks` explain its `first` encoder). Received: an embedding "
            f"from {type(layer).__name__} {layer.name!r}."
        )
    for name, needed in {"power": 1.0, "add_max": False}.items():
        if (found := getattr(layer, name, needed)) != needed:
            raise ValueError(
                f"`encoder` must pool with {name}={needed!r}: only then is the "
                "pooled vector a sum over prototypes. "
                f"Received: {name}={found!r}."
            )
    if isinstance(layer.input, list):
        raise ValueError(
            "`encoder` must pool the features that it compares with "
            "prototypes. Received: a pooling with separate values."
        )
    return layer, tensor
