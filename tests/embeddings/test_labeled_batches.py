"""embedding_of and the embeddings of a data set."""

import keras
import numpy as np
import pytest

from keras_gsp.embeddings.labeled_batches import (
    LabeledBatches,
    batches_of,
    embedding_of,
    encoded,
)


def encoder(*, is_dict):
    images = keras.layers.Input((4,))
    embedding = keras.layers.Dense(3, use_bias=False)(images)
    if is_dict:
        histogram = keras.layers.Dense(2)(images)
        embedding = {"embedding": embedding, "histogram": histogram}
    return keras.Model(images, embedding)


class Numbers(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(3 * index, 3 * index + 3)
        return IMAGES[rows], LABELS[rows]


IMAGES = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
LABELS = np.arange(9) // 2


@pytest.mark.parametrize("is_dict", [False, True])
@pytest.mark.parametrize("dataset", [(IMAGES, LABELS), Numbers()])
def test_a_data_set_is_embedded_batch_by_batch(is_dict, dataset):
    model = encoder(is_dict=is_dict)
    embeddings, labels = encoded(model, LabeledBatches(dataset, "data", 4))
    expected = IMAGES @ model.get_weights()[0]
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)
    assert labels.tolist() == LABELS.tolist()


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


def test_embeddings_that_are_not_finite_are_refused():
    model = encoder(is_dict=False)
    batches = LabeledBatches((IMAGES * np.nan, LABELS), "data", 4)
    with pytest.raises(ValueError, match="4 of 4 rows"):
        encoded(model, batches)
