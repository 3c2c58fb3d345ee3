"""RetrievalEvaluation: scores in the logs before other callbacks run."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.callbacks.retrieval_evaluation import RetrievalEvaluation
from keras_gsp.metrics import retrieval_scores


def small_set(seed=0, classes=4, per_class=6):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    images = rng.normal(size=(len(labels), 4, 4, 1)).astype("float32")
    return images + labels[:, None, None, None].astype("float32"), labels


def plain_model():
    layers = keras.layers.Flatten(), keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((4, 4, 1)), *layers])
    model.compile(keras.optimizers.SGD(1e-3), loss="mse", run_eagerly=True)
    return model


def fit(model, *callbacks, epochs=2):
    images, labels = small_set()
    targets = np.zeros((len(labels), 3), "float32")
    return model.fit(
        images, targets, 8, epochs=epochs, verbose=0, callbacks=callbacks
    )


def as_tf_dataset(images, labels, batch_size=5):
    tf = pytest.importorskip("tensorflow")
    slices = tf.data.Dataset.from_tensor_slices((images, labels))
    return slices.batch(batch_size)


class Batches(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def as_py_dataset(images, labels):
    return Batches(*((images[i::3], labels[i::3]) for i in range(3)))


KINDS = [as_tf_dataset, as_py_dataset, lambda x, y: [x, y]]


def test_logs_hold_the_scores_of_the_trained_weights():
    images, labels = small_set()
    model = plain_model()
    evaluation = RetrievalEvaluation(
        (images, labels), recall_at=(2,), truncate_to=(2,)
    )
    history = fit(model, evaluation)
    embeddings = model.predict(images, verbose=0)
    cut = embeddings[:, :2]
    cut = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    for rows, end in ((embeddings, ""), (cut, "_2")):
        expected = retrieval_scores(rows, labels, recall_at=(2,))
        for name in ("precision_at_1", "precision_at_r", "recall_at_2"):
            found = history.history[f"val_{name}{end}"][-1]
            assert found == pytest.approx(expected[name])
    assert not any("num" in name for name in history.history)


def test_images_may_be_inputs_by_name():
    images, labels = small_set()
    inputs = {"image": keras.Input((4, 4, 1), name="image")}
    outputs = keras.layers.Flatten()(inputs["image"])
    evaluation = RetrievalEvaluation(({"image": images}, labels), batch_size=7)
    evaluation.set_model(keras.Model(inputs, outputs))
    expected = retrieval_scores(images.reshape(len(images), -1), labels)
    assert evaluation.evaluate() == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_set_gives_the_scores_of_its_images(kind):
    images, labels = small_set(classes=6)
    evaluation = RetrievalEvaluation(kind(images, labels), batch_size=5)
    evaluation.set_model(model := plain_model())
    evaluation.on_train_begin()
    expected = retrieval_scores(model.predict(images, verbose=0), labels)
    assert evaluation.evaluate() == pytest.approx(expected)


def test_the_encoder_is_scored_when_the_model_has_one():
    images, labels = small_set()
    inputs = keras.Input((4, 4, 1))
    features = keras.layers.Flatten()(inputs)
    outputs = {
        "embedding": keras.layers.Dense(3)(features),
        "histogram": keras.layers.Dense(5, activation="softmax")(features),
    }
    model = gsp.models.MetricLearner(keras.Model(inputs, outputs))
    evaluation = RetrievalEvaluation((images, labels))
    evaluation.set_model(model)
    evaluation.evaluate()
    embeddings = model.encoder.predict(images, verbose=0)["embedding"]
    assert evaluation.scores == retrieval_scores(embeddings, labels)


def test_queries_can_search_a_gallery_of_their_own():
    queries, gallery = small_set(0), small_set(1)
    model = plain_model()
    evaluation = RetrievalEvaluation(queries, gallery=gallery, name="shop")
    history = fit(model, evaluation)
    expected = retrieval_scores(
        model.predict(queries[0], verbose=0),
        queries[1],
        gallery_embeddings=model.predict(gallery[0], verbose=0),
        gallery_labels=gallery[1],
    )
    assert evaluation.scores == expected
    assert history.history["shop_map_at_r"][-1] == expected["map_at_r"]
    part = gallery[0][gallery[1] > 0], gallery[1][gallery[1] > 0]
    with pytest.warns(UserWarning, match="6 of 24 queries have no item of th"):
        history = fit(model, RetrievalEvaluation(queries, gallery=part))
    assert history.history["val_num_dropped"] == [6, 6]


def test_it_evaluates_every_few_epochs_and_leaves_training_as_it_was():
    weights = []
    for callbacks in (
        [],
        [RetrievalEvaluation(small_set(), validation_freq=2)],
    ):
        keras.utils.set_random_seed(3)
        model = plain_model()
        history = fit(model, *callbacks, epochs=5)
        weights.append(model.get_weights())
    assert len(history.history["val_map_at_r"]) == 2
    np.testing.assert_equal(*weights)
