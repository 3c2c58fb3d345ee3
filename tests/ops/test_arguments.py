"""Integers are checked in one place, for every layer that counts."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.ops.arguments import check_integer, check_seed


@pytest.mark.parametrize("count", [2.5, 2.0, True, "2", 0, None])
@pytest.mark.parametrize(
    ("layer", "argument"),
    [
        (lambda n: gsp.layers.ClassEmbeddings(n, 4), "num_classes"),
        (lambda n: gsp.layers.ClassEmbeddings(4, n), "embedding_size"),
        (gsp.layers.PrototypeHistogram, "num_prototypes"),
        (gsp.layers.EmbeddingMemory, "capacity"),
        (gsp.layers.ClassProxies, "num_classes"),
    ],
    ids=["rows", "size", "histogram", "memory", "proxies"],
)
def test_layers_refuse_counts_that_are_none(layer, argument, count):
    with pytest.raises(ValueError, match=f"`{argument}` must be an integer"):
        layer(count)


def test_integers_of_numpy_are_integers():
    check_integer(least=2, size=np.int64(2))
    with pytest.raises(ValueError, match="at least 3. Received: size=2"):
        check_integer(least=3, size=2)


def test_any_integer_passes_without_a_bound():
    check_integer(seed=-(2**70))
    check_integer(is_optional=True, seed=None)
    with pytest.raises(ValueError, match="`seed` must be an integer. Rec"):
        check_integer(seed=0.5)


def test_seed_of_a_loss_is_an_int_or_none():
    assert check_seed(3) == 3
    assert check_seed(None) is None
    with pytest.raises(TypeError, match="`seed` must be an int or None"):
        check_seed(keras.random.SeedGenerator(0))
