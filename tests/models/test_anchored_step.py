"""The anchored step: its formula, the same on all backends."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import MetricLoss

TARGET = np.array([[0.5, -1.0, 2.0, 0.25]], "float32")
ANCHOR = np.array([[-1.0, 1.0, 0.5, 3.0]], "float32")
START = np.array([[2.0, 0.0, -1.0, 1.0]], "float32")
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


class Quadratic(MetricLoss):
    """Half the squared distance to a target; the gradient is theta - t."""

    def call(self, labels, embeddings):
        return 0.5 * ops.sum(ops.square(embeddings - TARGET), axis=-1)


def quadratic_learner(anchor_weight):
    """Its only weights are the embedding of the input 1."""
    encoder = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(4, use_bias=False)]
    )
    encoder.set_weights([START])
    learner = gsp.models.MetricLearner(encoder, anchor_weight=anchor_weight)
    learner.compile(keras.optimizers.SGD(1.0), loss=Quadratic())
    return learner


def train(learner):
    learner.train_on_batch(np.ones((1, 1), "float32"), np.zeros(1, "int32"))
    return learner.encoder.get_weights()[0]


def test_one_step_per_problem_is_the_moving_average_less_the_error_term():
    # MATH 5, learning rate 1: (1 - l)(theta - g) + l theta* - l g.
    weight, theta = 0.3, START
    # Nothing pulls in the first problem.
    plain = train(quadratic_learner(None))
    np.testing.assert_array_equal(train(quadratic_learner(weight)), plain)
    free = quadratic_learner(0.0)
    free.anchored.start_problem([ANCHOR])
    np.testing.assert_allclose(train(free), plain, atol=1e-6)
    learner = quadratic_learner(weight)
    for lagging in (ANCHOR, ANCHOR + 1.0, ANCHOR - 0.5):
        learner.anchored.start_problem([lagging])
        gradient = theta - TARGET
        theta = (1 - weight) * (theta - gradient) + weight * lagging
        theta = theta - weight * gradient
        np.testing.assert_allclose(train(learner), theta, atol=1e-6)


class ThroughTheLoss(gsp.models.MetricLearner):
    """Takes Keras's own step: the pull is the gradient of the penalty."""

    def train_step(self, data):
        return keras.Model.train_step(self, data)


def several_steps(kind, *, policy="float32", freeze=False, **settings):
    keras.config.set_dtype_policy(policy)
    random = np.random.default_rng(0)
    first = keras.layers.Dense(6, activation="tanh", trainable=not freeze)
    second = keras.layers.Dense(4, kernel_regularizer="l2")
    encoder = keras.Sequential([keras.Input((5,)), first, second])
    encoder.set_weights([random.normal(size=w.shape) for w in encoder.weights])
    learner = kind(
        encoder,
        proxies=gsp.layers.ClassProxies(4, proxies_initializer="ones"),
        anchor_weight=0.5,
        in_batch_weight=0.5,
    )
    # One case is compiled, the others eager.
    steps = settings.pop("steps_per_execution", 1)
    learner.compile(
        keras.optimizers.SGD(0.1, 0.9, **settings),
        loss=gsp.losses.MultiSimilarityLoss(),
        steps_per_execution=steps,
        run_eagerly=steps == 1,
    )
    anchors = [
        keras.ops.convert_to_numpy(v) + 0.3 for v in encoder.trainable_variables
    ]
    learner.anchored.start_problem(anchors)
    images = random.normal(size=(32, 5)).astype("float32")
    labels = np.tile(np.arange(4), 8)
    losses = learner.fit(
        images, labels, batch_size=8, epochs=2, shuffle=False, verbose=0
    ).history["loss"]
    return losses, learner.get_weights()


@pytest.mark.skipif(not ON_TENSORFLOW, reason="JAX has the pull in the loss")
@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "mixed_float16"},
        {"clipnorm": 0.1},
        {"gradient_accumulation_steps": 2},
        pytest.param({"steps_per_execution": 4}, marks=pytest.mark.slow),
        {"freeze": True},
    ],
    ids=str,
)
def test_pulled_gradients_and_the_penalty_take_the_same_steps(settings):
    losses, weights = several_steps(gsp.models.MetricLearner, **settings)
    expected, targets = several_steps(ThroughTheLoss, **settings)
    # Half precision rounds the gradient of the penalty once more.
    tolerance = 1e-3 if "policy" in settings else 1e-6
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for weight, target in zip(weights, targets, strict=True):
        np.testing.assert_allclose(weight, target, atol=tolerance)
