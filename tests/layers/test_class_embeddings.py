"""Class embeddings: a table with one row a class."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.layers.class_embeddings import ClassEmbeddings
from tests.compiled import on_tensorflow
from tests.gradients import gradients


def stateless(layer, table, labels):
    with keras.StatelessScope(state_mapping=[(layer.embeddings, table)]):
        return layer(labels)


def test_returns_the_rows_of_the_labels():
    layer = ClassEmbeddings(5, 3)
    table = np.asarray(layer.embeddings)
    labels = np.array([4, 0, 0, 2])
    for same in (labels, labels.astype("float32"), labels[:, None]):
        np.testing.assert_array_equal(np.asarray(layer(same)), table[labels])
    (gradient,) = gradients(
        lambda rows: ops.sum(stateless(layer, 1.0 * rows, labels)), table
    )
    expected = np.bincount(labels, minlength=5)[:, None] * np.ones(3)
    np.testing.assert_array_equal(gradient, expected)


@on_tensorflow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_rounds_neither_labels_nor_rows(policy):
    layer = ClassEmbeddings(5000, 2, dtype=policy)
    labels = np.array([4097.0, 4098.0, 4999.0], "float32")
    rows = layer(labels)
    assert keras.backend.standardize_dtype(rows.dtype) == "float32"
    np.testing.assert_array_equal(
        np.asarray(rows), np.asarray(layer.embeddings)[labels.astype(int)]
    )


@on_tensorflow
def test_vectors_start_at_one_norm_however_many_classes_there_are():
    for num_classes in (18, 2000):
        table = np.asarray(ClassEmbeddings(num_classes, 128).embeddings)
        norms = np.linalg.norm(table, axis=1)
        np.testing.assert_allclose(norms.mean(), np.sqrt(2.0), rtol=0.05)


@on_tensorflow
def test_wrong_arguments_are_refused():
    for labels in ([0, 5], [-1, 0], [0.5, 1.0], [0, 2**32 + 3]):
        with pytest.raises(ValueError, match=r"\[0, 5\). Received: labels="):
            ClassEmbeddings(5, 3)(np.array(labels))
    for argument in ("num_classes", "embedding_size"):
        sizes = {"num_classes": 5, "embedding_size": 3, argument: 0}
        with pytest.raises(ValueError, match=f"must.*{argument}=0"):
            ClassEmbeddings(**sizes)
