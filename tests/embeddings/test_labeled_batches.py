"""Batches of arrays, and the embedding among a model's outputs."""

import numpy as np
import pytest

from keras_gsp.embeddings.labeled_batches import (
    batches_of,
    embedding_of,
)

IMAGES = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
LABELS = np.arange(9) // 2


def test_arrays_may_come_in_another_order_and_iterables_in_their_own():
    found = list(batches_of((IMAGES, LABELS), 4, np.arange(9)[::-1]))
    assert [len(labels) for _, labels in found] == [4, 4, 1]
    assert (
        np.concatenate([x[1] for x in found]).tolist() == LABELS.tolist()[::-1]
    )
    assert list(batches_of([1, 2], 4)) == [1, 2]


@pytest.mark.parametrize(
    "outputs", [np.ones((2, 8)), (None, 8), [2, 8], (2, 8)]
)
def test_one_tensor_or_shape_is_the_embedding(outputs):
    assert embedding_of(outputs) is outputs
    both = {"embedding": outputs, "histogram": np.ones((2, 4))}
    assert embedding_of(both) is outputs


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        ({"pooled": np.ones((2, 8))}, TypeError, r"keys \['pooled'\]"),
        ((np.ones((2, 8)),) * 2, TypeError, "2 outputs"),
        (np.ones((2, 3, 8)), ValueError, r"\(2, 3, 8\)"),
        ((None, 3, 8), ValueError, r"\(None, 3, 8\)"),
    ],
)
def test_what_is_no_embedding_is_refused(outputs, error, message):
    with pytest.raises(error, match=message):
        embedding_of(outputs)
