"""Each miner keeps the pairs that its equation names."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.ops.mining import MINERS
from keras_gsp.ops.pairs import PairWeights
from tests.compiled import compiled, not_on_jax
from tests.gradients import gradients

LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3])
OTHERS = np.array([0, 1, 2, 0, 1, 2, 0, 5])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def problem():
    random = np.random.default_rng(0)
    embeddings = unit(random.normal(size=(9, 4)))
    references = unit(random.normal(size=(8, 4)))
    is_positive = LABELS[:, None] == OTHERS[None, :]
    is_positive[4] = False  # An anchor without positives,
    is_negative = LABELS[:, None] != OTHERS[None, :]
    is_negative[5] = False  # one without negatives.
    weights = PairWeights(
        is_positive.astype("float64"), is_negative.astype("float64")
    )
    distances = np.linalg.norm(embeddings[:, None] - references[None], axis=-1)
    return embeddings, references, weights, distances


def mined(miner, seed=None):
    embeddings, references, weights, _ = problem()
    found = MINERS[miner](
        keras.ops.convert_to_tensor(embeddings),
        keras.ops.convert_to_tensor(references),
        PairWeights(*map(keras.ops.convert_to_tensor, weights)),
        seed,
    )
    return PairWeights(*map(keras.ops.convert_to_numpy, found))


def anchors(weights):
    """Each anchor, its positives and its negatives."""
    for a in range(9):
        yield a, *(np.flatnonzero(kind[a]) for kind in weights)


def check(miner, keep):
    """`keep` adds an anchor's pairs to the weights that are expected."""
    embeddings, references, weights, distances = problem()
    cosines = embeddings @ references.T
    expected = PairWeights(np.zeros((9, 8)), np.zeros((9, 8)))
    for a, positives, negatives in anchors(weights):
        keep(expected, a, positives, negatives, distances[a], cosines[a])
    np.testing.assert_array_equal(mined(miner), expected)


def test_batch_hard(double_precision):
    def keep(expected, a, positives, negatives, distances, cosines):
        if len(positives) and len(negatives):
            farthest = max(positives, key=lambda p: distances[p])
            nearest = min(negatives, key=lambda n: distances[n])
            expected.positive[a, farthest] = expected.negative[a, nearest] = 1

    check("batch_hard", keep)


def test_semi_hard(double_precision):
    def keep(expected, a, positives, negatives, distances, cosines):
        for p in positives:
            farther = [n for n in negatives if distances[n] > distances[p]]
            if farther:
                nearest = min(farther, key=lambda n: distances[n])
                expected.positive[a, p] = 1.0
                expected.negative[a, nearest] += 1.0

    check("semi_hard", keep)


def test_multi_similarity(double_precision):
    def keep(expected, a, positives, negatives, distances, cosines):
        most = max(cosines[negatives], default=-np.inf)
        least = min(cosines[positives], default=np.inf)
        expected.positive[a, positives] = cosines[positives] < most + 0.1
        expected.negative[a, negatives] = cosines[negatives] > least - 0.1

    check("multi_similarity", keep)


@not_on_jax
def test_distance_weighted_draws_a_negative_for_each_positive():
    _, _, weights, distances = problem()
    found = mined("distance_weighted", seed=1)
    for a, positives, negatives in anchors(weights):
        near = [n for n in negatives if distances[a, n] < 1.4]
        drawn = len(positives) if near else 0
        assert found.negative[a].sum() == drawn
        assert found.positive[a].sum() == drawn
        assert set(np.flatnonzero(found.negative[a])) <= set(near)
    again = mined("distance_weighted", seed=1)
    np.testing.assert_array_equal(found.negative, again.negative)
    draws = {mined("distance_weighted").negative.tobytes() for _ in range(8)}
    assert len(draws) > 1  # No seed, new draws.


@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="JAX compiles no new draws"
)
def test_draws_without_a_seed_are_refused_in_a_step_on_jax():
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    learner = gsp.models.MetricLearner(encoder)
    loss = gsp.losses.MarginLoss(miner="distance_weighted")
    learner.compile("sgd", loss=loss)
    before = learner.get_weights()
    with pytest.raises(ValueError, match="seed=0"):
        learner.fit(np.ones((9, 4)), LABELS, verbose=0)
    np.testing.assert_equal(learner.get_weights(), before)


@not_on_jax
def test_distance_weighted_draws_evenly_over_distances():
    """4,000 times the same anchor: how often each negative is drawn."""
    angles = np.array([0.2, 0.6, 0.9, 1.2, 2.0, np.pi])
    references = np.zeros((6, 5), "float32")
    references[:, 0], references[:, 1] = np.cos(angles), np.sin(angles)
    anchor, negatives = np.eye(5, dtype="float32")[:1], references[:5]
    kinds = np.tile(np.arange(6) < 5, (4000, 1))
    found = MINERS["distance_weighted"](
        keras.ops.convert_to_tensor(np.tile(anchor, (4000, 1))),
        keras.ops.convert_to_tensor(references),
        PairWeights(
            keras.ops.cast(~kinds, "float32"), keras.ops.cast(kinds, "float32")
        ),
        7,
    )
    distances = np.linalg.norm(anchor - negatives, axis=1)
    capped = np.maximum(distances, 0.5)
    density = capped**3 * (1.0 - capped**2 / 4.0)  # d = 5
    chances = np.where(distances < 1.4, 1.0 / density, 0.0)
    chances /= chances.sum()
    shares = np.asarray(found.negative)[:, :5].mean(axis=0)
    # Four standard deviations of a share of 4,000 draws.
    np.testing.assert_allclose(shares, chances, atol=4 * 0.5 / np.sqrt(4000))


@not_on_jax
@pytest.mark.parametrize("miner", MINERS)
def test_every_miner_compiles_passes_a_gradient_and_may_find_nothing(miner):
    loss = gsp.losses.TripletLoss(1.0, miner=miner, seed=0)
    embeddings = np.random.default_rng(0).normal(size=(12, 6))
    embeddings, labels = embeddings.astype("float32"), np.arange(12) % 4
    value = compiled(lambda e: loss(labels, e))(embeddings)
    if miner == "distance_weighted":  # XLA draws other numbers.
        assert np.isfinite(value)
    else:
        np.testing.assert_allclose(value, loss(labels, embeddings), rtol=1e-5)
    (slopes,) = gradients(lambda e: loss(labels, e), embeddings)
    assert np.isfinite(slopes).all() and slopes.any()
    for nothing in (np.arange(12), 0 * labels):
        np.testing.assert_array_equal(loss(nothing, embeddings), 0.0)


def semi_hard_triplets(labels, embeddings, margin):
    embeddings = unit(embeddings)
    for a in range(len(labels)):
        distances = np.linalg.norm(embeddings - embeddings[a], axis=1)
        for p in np.flatnonzero(labels == labels[a]):
            farther = (labels != labels[a]) & (distances > distances[p])
            if p != a and farther.any():
                gap = distances[p] - distances[farther].min() + margin
                yield max(gap, 0.0)


def test_triplets_stay_together_when_semi_hard(double_precision):
    labels = np.arange(12) % 4
    embeddings = np.random.default_rng(0).normal(size=(12, 4))
    hinges = np.array([*semi_hard_triplets(labels, embeddings, margin=0.2)])
    # Keras averages a float64 loss in float32 on PyTorch.
    rtol = 1e-6 if keras.backend.backend() == "torch" else 1e-10
    loss = gsp.losses.TripletLoss(0.2, miner="semi_hard", dtype="float64")
    expected = hinges[hinges > 0.0].mean()
    np.testing.assert_allclose(loss(labels, embeddings), expected, rtol=rtol)


@keras.saving.register_keras_serializable(package="tests")
def nearest_half(embeddings, references, weights, seed):
    del seed
    similarities = keras.ops.matmul(embeddings, keras.ops.transpose(references))
    near = keras.ops.cast(similarities > 0.0, embeddings.dtype)
    return PairWeights(weights.positive, weights.negative * near)


@not_on_jax
def test_a_function_is_a_miner_and_is_saved():
    loss = gsp.losses.ContrastiveLoss(miner=nearest_half)
    given = np.arange(8) % 2, np.random.default_rng(0).normal(size=(8, 3))
    again = gsp.losses.ContrastiveLoss.from_config(loss.get_config())
    assert again.miner is nearest_half
    np.testing.assert_array_equal(again(*given), loss(*given))
