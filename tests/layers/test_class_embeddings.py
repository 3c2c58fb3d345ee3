"""Class embeddings: a table with one row a class."""

import keras
import numpy as np
import pytest

from keras_gsp.layers.class_embeddings import ClassEmbeddings
from tests.compiled import compiled


def test_returns_the_rows_of_the_labels():
    layer = ClassEmbeddings(5, 3)
    table = np.asarray(layer.embeddings)
    labels = np.array([4, 0, 0, 2])
    for same in (labels, labels.astype("float32"), labels[:, None]):
        np.testing.assert_array_equal(np.asarray(layer(same)), table[labels])


def test_the_table_is_there_before_any_call():
    layer = ClassEmbeddings(5, 3)
    assert layer.embeddings.shape == (5, 3)
    assert [weight.path for weight in layer.trainable_weights] == [
        f"{layer.name}/embeddings"
    ]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_rounds_neither_labels_nor_rows(policy):
    layer = ClassEmbeddings(5000, 2, dtype=policy)
    labels = np.array([4097.0, 4098.0, 4999.0], "float32")
    rows = layer(labels)
    assert keras.backend.standardize_dtype(rows.dtype) == "float32"
    np.testing.assert_array_equal(
        np.asarray(rows), np.asarray(layer.embeddings)[labels.astype(int)]
    )


def test_symbolic_output_matches_the_eager_one():
    layer = ClassEmbeddings(5, 3, dtype="mixed_float16")
    output = layer(keras.Input((), dtype="int32"))
    assert output.shape == (None, 3)
    assert output.dtype == "float32"


def test_learns_under_fit():
    layer = ClassEmbeddings(5, 3)
    before = np.asarray(layer.embeddings)
    model = keras.Sequential([keras.Input((), dtype="int32"), layer])
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=True)
    model.fit(np.array([1, 1, 3, 3]), np.zeros((4, 3)), verbose=0)
    moved = np.any(np.asarray(layer.embeddings) != before, axis=1)
    np.testing.assert_array_equal(moved, [False, True, False, True, False])


def test_compiled_equals_eager():
    layer = ClassEmbeddings(5, 3)
    labels = np.array([4, 0, 2])
    np.testing.assert_array_equal(
        np.asarray(compiled(layer.call)(labels)), np.asarray(layer(labels))
    )


def test_keras_file_round_trip(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((), dtype="int32"),
            ClassEmbeddings(
                5,
                3,
                embeddings_initializer="ones",
                embeddings_regularizer="l2",
                embeddings_constraint="unit_norm",
            ),
        ]
    )
    model.layers[-1].embeddings.assign(np.arange(15.0).reshape(5, 3))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.layers[-1].get_config() == model.layers[-1].get_config()
    labels = np.arange(5)
    np.testing.assert_array_equal(
        again.predict(labels, verbose=0), model.predict(labels, verbose=0)
    )


@pytest.mark.parametrize("labels", [[0, 5], [-1, 0], [0.5, 1.0]])
def test_labels_without_a_row_are_refused(labels):
    with pytest.raises(ValueError, match=r"\[0, 5\). Received: labels="):
        ClassEmbeddings(5, 3)(np.array(labels))


@pytest.mark.parametrize("argument", ["num_classes", "embedding_size"])
def test_sizes_must_be_positive(argument):
    sizes = {"num_classes": 5, "embedding_size": 3, argument: 0}
    with pytest.raises(ValueError, match=f"`{argument}` must.*{argument}=0"):
        ClassEmbeddings(**sizes)


def test_vectors_start_at_one_norm_however_many_classes_there_are():
    for num_classes in (18, 2000):
        table = np.asarray(ClassEmbeddings(num_classes, 128).embeddings)
        norms = np.linalg.norm(table, axis=1)
        np.testing.assert_allclose(norms.mean(), np.sqrt(2.0), rtol=0.05)
