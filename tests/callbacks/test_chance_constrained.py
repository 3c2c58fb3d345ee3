"""Alternating proxies: when they change, to what, and what is saved."""

import re
import warnings

import keras
import numpy as np
import pytest

import keras_gsp as gsp

CLASSES, PER_CLASS, SIZE = 3, 2, 4
IMAGES = np.random.default_rng(0).normal(size=(24, 5)).astype("float32")
LABELS = np.repeat(np.arange(CLASSES), 8)


class Scores(keras.callbacks.Callback):
    """Puts the given scores into the logs, one an epoch."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def on_epoch_end(self, epoch, logs=None):
        if self.scores[epoch] is not None:
            logs["val_map_at_r"] = self.scores[epoch]


class Weights(keras.callbacks.Callback):
    """Keeps encoder and proxies at the end, or `at_start`, of each epoch."""

    def __init__(self, at_start=False):
        super().__init__()
        self.at_start = at_start
        self.encoder, self.proxies = [], []

    def on_train_batch_begin(self, batch, logs=None):
        if self.at_start and batch == 0:
            self.keep()

    def on_epoch_end(self, epoch, logs=None):
        if not self.at_start:
            self.keep()

    def keep(self):
        self.encoder.append(self.model.encoder.get_weights())
        self.proxies.append(self.model.proxies.get_weights()[0])


def build_learner(
    *, learning_rate=0.1, per_class=PER_CLASS, loss=None, **arguments
):
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential([keras.Input((5,))])
    encoder.add(keras.layers.Dense(6, activation="tanh"))
    encoder.add(keras.layers.BatchNormalization())
    encoder.add(keras.layers.Dense(SIZE))
    proxies = gsp.layers.ClassProxies(CLASSES, proxies_per_class=per_class)
    arguments = {"anchor_weight": 0.01, "proxies": proxies} | arguments
    learner = gsp.models.MetricLearner(encoder, **arguments)
    learner.compile(
        keras.optimizers.SGD(learning_rate, momentum=0.9),
        loss=loss or gsp.losses.ContrastiveLoss(),
        run_eagerly=True,
    )
    return learner


def fit(learner, scores, *others, pool=None, epochs=None, **arguments):
    callback = gsp.callbacks.ChanceConstrainedProgramming(
        (IMAGES, LABELS) if pool is None else pool,
        **({"pool_size": 4, "patience": 2} | arguments),
    )
    used = [Scores(scores), callback, *others]
    return train(learner, epochs or len(scores), callbacks=used).history


def train(learner, epochs=1, **options):
    options |= {"batch_size": 24, "epochs": epochs, "verbose": 0}
    return learner.fit(IMAGES, LABELS, shuffle=False, **options)


def embed(learner, images):
    return keras.ops.convert_to_numpy(learner.encoder(images, training=False))


def is_among(rows, samples):
    distances = np.abs(rows[:, None] - samples[None]).max(axis=-1)
    return distances.min(axis=1) < 1e-5


def assert_are_samples(proxies, embeddings=None):
    """Of their classes, as the new learner embeds them."""
    # Batch normalization moves its statistics during training.
    if embeddings is None:
        embeddings = embed(build_learner(), IMAGES)
    for label in range(CLASSES):
        assert is_among(proxies[label], embeddings[label == LABELS]).all()


@pytest.mark.parametrize("per_class, pool_size", [(2, 4), (4, 1)])
def test_first_proxies_are_different_samples(per_class, pool_size):
    """A pool of one sample a proxy is random sampling."""
    learner = build_learner(learning_rate=0.0, per_class=per_class)
    fit(learner, [0.5], pool_size=pool_size)
    proxies = learner.proxies.get_weights()[0]
    assert_are_samples(proxies)
    for own in proxies:
        distances = np.abs(own[:, None] - own).max(axis=-1)
        assert (distances + np.eye(per_class)).min() > 0.01


NAN = float("nan")
SCHEDULES = {
    "patience": (
        [0.1, 0.2, 0.2, 0.1, 0.1, 0.05, 0.3, 0.2, 0.2, 0.2],
        {},
        [1, 1, 1, 1, 2, 2, 2, 2, 2, 3],
    ),
    "one problem": ([0.3, 0.2, 0.1, 0.0], {"patience": None}, [1] * 4),
    "NaN is no gain": ([NAN, 0.5, NAN, NAN, 0.1], {}, [1, 1, 1, 1, 2]),
    "epochs without an evaluation count for nothing": (
        [None, 0.5, None, 0.4, None, 0.3, None],
        {"validation_freq": 2},
        [1, 1, 1, 1, 1, 1, 2],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_problems_end_on_schedule(name):
    scores, arguments, problems = SCHEDULES[name]
    history = fit(build_learner(), scores, **arguments)
    assert history["ccp_problem"] == problems
    steps = [
        problems[: epoch + 1].count(problem)
        for epoch, problem in enumerate(problems)
    ]
    assert history["ccp_steps"] == steps


def test_without_a_pull_proxies_alternate():
    scores = [0.4, 0.3, 0.2, 0.1, 0.1]
    learner, weights = build_learner(anchor_weight=0.0), Weights()
    history = fit(learner, scores, weights)
    assert history["ccp_problem"] == [1, 1, 1, 2, 2]
    assert history["ccp_anchor_distance"][-1] > 0.0
    assert is_among(weights.proxies[0][0], weights.proxies[3][0]).sum() == 0


def test_proxies_of_a_proxy_loss_alternate_too():
    loss = gsp.losses.ProxyAnchorLoss()
    learner, weights = build_learner(learning_rate=0.01, loss=loss), Weights()
    history = fit(learner, [0.4, 0.3, 0.2, 0.1], weights)
    assert history["ccp_problem"] == [1, 1, 1, 2]
    assert np.diff(history["loss"][:3]).max() < 0.0
    frozen = build_learner(learning_rate=0.0, loss=loss)
    fit(frozen, [0.4])
    assert_are_samples(frozen.proxies.get_weights()[0])


def test_pairs_of_the_batch_stand_in_for_proxies_while_they_warm_up():
    plain = build_learner(learning_rate=0.05, in_batch_weight=1.0)
    plain.proxies = None
    train(plain, 2)
    learner = build_learner(learning_rate=0.05, in_batch_weight=1.0)
    weights, before = Weights(), Weights(at_start=True)
    scores = [0.9, 0.8, 0.3, 0.2, 0.1, 0.1]
    history = fit(learner, scores, weights, before, warmup_epochs=2)
    np.testing.assert_equal(weights.encoder[1], plain.encoder.get_weights())
    np.testing.assert_array_equal(*weights.proxies[:2])
    # Scores of the warm-up are no problem's, however good.
    assert history["ccp_problem"] == [0, 0, 1, 1, 1, 2]
    assert history["ccp_steps"] == [0, 0, 1, 2, 3, 1]
    plain.encoder.set_weights(before.encoder[2])
    assert_are_samples(before.proxies[2], embed(plain, IMAGES))


def test_anchors_and_network_are_the_last_weights():
    scores, weights = [0.1, 0.4, 0.3, 0.2, 0.1], Weights()
    learner, before = build_learner(learning_rate=0.05), Weights(at_start=True)
    history = fit(learner, scores, weights, before)
    expected = weights.encoder[3]
    np.testing.assert_equal(before.encoder[4], expected)
    kernels = [w for w in expected if w.ndim == 2]
    anchors = [np.asarray(a) for a in learner.anchored.anchors if a.ndim == 2]
    np.testing.assert_equal(anchors, kernels)
    assert float(learner.anchored.scale) == pytest.approx(0.01)
    assert int(learner.anchored.problem) == 2
    assert int(learner.optimizer.iterations) == 5  # It keeps its state.
    pairs = zip(
        learner.encoder.trainable_variables,
        learner.anchored.anchors,
        strict=True,
    )
    squares = [np.sum((np.array(w) - np.array(a)) ** 2) for w, a in pairs]
    expected = [0.0] * 4 + [np.sqrt(sum(squares))]
    assert history["ccp_anchor_distance"] == pytest.approx(expected)


def nearest(samples, centers):
    return [min(np.linalg.norm(s - c) for c in centers) for s in samples]


def greedy(pool, old):
    """What k-center adds to the old proxies of a class."""
    centers, chosen = [*unit(old)], []
    for _ in range(PER_CLASS):
        chosen.append(pool[int(np.argmax(nearest(unit(pool), centers)))])
        centers.append(unit(chosen[-1]))
    return np.array(chosen)


def test_next_proxies_are_greedily_added_and_their_cover_is_logged():
    weights, before = Weights(), Weights(at_start=True)
    loss = gsp.losses.ContrastiveLoss(positive_margin=0.3)
    learner = build_learner(learning_rate=0.3, loss=loss)
    history = fit(learner, [0.4, 0.3, 0.2, 0.1], weights, before)
    encoder = build_learner().encoder
    encoder.set_weights(weights.encoder[2])
    order = np.random.default_rng([0, 2]).permutation(24)
    away = []
    for label in range(CLASSES):
        rows = order[LABELS[order] == label][:4]
        pool = keras.ops.convert_to_numpy(encoder(IMAGES[rows]))
        expected = greedy(pool, weights.proxies[2][label])
        found = before.proxies[3][label]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        # Of the new proxies alone, as many as in any other problem.
        away.append(nearest(unit(pool), unit(found)))
    radius = np.max(away, axis=1).mean()
    assert history["ccp_covering_radius"][3] == pytest.approx(radius, rel=1e-4)
    share = np.mean(np.array(away) > 0.3)
    assert 0.0 < share < 1.0
    assert history["ccp_far_share"][3] == pytest.approx(share)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_proxies_may_stay_the_samples_that_they_were_chosen_as():
    learner, weights = build_learner(), Weights()
    learner.proxies.trainable = False
    learner.compile("adam", loss=gsp.losses.ContrastiveLoss(), run_eagerly=True)
    before = Weights(at_start=True)
    history = fit(learner, [0.3, 0.2, 0.1, 0.1], weights, before, patience=1)
    assert history["ccp_problem"] == [1, 1, 2, 2]
    for first in (0, 2):
        np.testing.assert_array_equal(
            weights.proxies[first], weights.proxies[first + 1]
        )
        encoder = build_learner().encoder
        encoder.set_weights(before.encoder[first])
        embeddings = keras.ops.convert_to_numpy(encoder(IMAGES))
        assert_are_samples(weights.proxies[first], embeddings)
    assert np.abs(weights.encoder[0][0] - weights.encoder[3][0]).max() > 0.0


def test_interrupted_in_the_middle_of_a_problem_goes_on_bit_by_bit(tmp_path):
    scores = [0.1, 0.3, 0.2, 0.1, 0.2, 0.1, 0.0, 0.1]

    def run(folder, epochs):
        learner = build_learner()
        resume = gsp.callbacks.ExactResume(tmp_path / folder)
        resume.restore(learner)
        fit(learner, scores, resume, epochs=epochs)
        return [
            np.asarray(keras.ops.convert_to_numpy(variable))
            for variable in (*learner.variables, *learner.optimizer.variables)
        ]

    whole = run("whole", 8)
    for epochs in (3, 4, 6, 8):
        part = run("parts", epochs)
    np.testing.assert_equal(part, whole)


def endless(count):
    tf = pytest.importorskip("tensorflow", reason="a tf.data pipeline")
    data = (IMAGES[:count], LABELS[:count])
    return tf.data.Dataset.from_tensors(data).repeat()


def test_a_pool_may_be_small_and_endless_and_is_asked_for_its_classes():
    asked = []

    def pool(classes, problem):
        asked.append((classes.tolist(), problem))
        return endless(17)

    learner, weights = build_learner(learning_rate=0.0), Weights()
    fit(learner, [0.4, 0.3, 0.2, 0.1], weights, pool=pool)
    assert asked[0] == ([0, 1, 2], 1) and asked[-1][1] == 2
    # A class with fewer samples than proxies repeats one.
    assert_are_samples(weights.proxies[0])
    np.testing.assert_array_equal(*weights.proxies[0][2])


def test_a_pool_that_fails_at_the_switch_loses_nothing(tmp_path):
    def pool(classes, problem):
        return (
            [(IMAGES, LABELS)] if problem == 1 else [(IMAGES[:8], LABELS[:8])]
        )

    learner, weights = build_learner(), Weights()
    resume = gsp.callbacks.ExactResume(tmp_path)
    with pytest.raises(ValueError, match="none of 2 classes"):
        fit(learner, [0.3, 0.2, 0.1, 0.0], weights, resume, pool=pool)
    assert len(weights.encoder) == 3
    after, expected = learner.encoder.get_weights(), weights.encoder[2]
    np.testing.assert_equal(after, expected)
    assert gsp.callbacks.ExactResume(tmp_path).restore(build_learner()) == 3


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_missing_monitor_is_named_after_the_epoch_was_saved(tmp_path, epochs):
    learner = build_learner()
    resume = gsp.callbacks.ExactResume(tmp_path)
    with pytest.raises(ValueError, match="monitor='score'.*val_map_at_r"):
        fit(learner, [0.1] * epochs, resume, monitor="score")
    assert gsp.callbacks.ExactResume(tmp_path).restore(build_learner()) == 1


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [
        ([0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], 2, "did not improve"),
        ([0.5, 0.1, 0.1, 0.6], 2, None),
        ([0.1, 0.1, 0.1], 2, "No second problem.*epochs=3"),
        ([0.1], None, None),
    ],
)
def test_a_single_problem_and_one_that_stays_the_best_are_warned_of(
    scores, patience, expected
):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(build_learner(), scores, patience=patience)
    words = [str(w.message) for w in caught if w.category is UserWarning]
    assert bool(words) == bool(expected)
    assert not expected or re.search(expected, words[0])
