"""Laws of every loss, and each in a model, a learner and a file."""

import inspect
import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.gradients import gradients
from tests.losses import pair_oracle, proxy_oracle
from tests.losses.tables import every_case, make, table

MINED = {
    "contrastive_batch_hard": gsp.losses.ContrastiveLoss(miner="batch_hard"),
    "contrastive_mined": gsp.losses.ContrastiveLoss(miner="multi_similarity"),
    "triplet_semi_hard": gsp.losses.TripletLoss(miner="semi_hard"),
    "margin_drawn": gsp.losses.MarginLoss(miner="distance_weighted", seed=0),
}
PAIR_LOSSES = MINED | {
    case: pair_oracle.make(case) for case in pair_oracle.PAIR_LOSSES
}
PROXY_LOSSES = {
    case: proxy_oracle.make(case) for case in proxy_oracle.PROXY_LOSSES
}
LOSSES = {**PAIR_LOSSES, **PROXY_LOSSES}
every_loss = pytest.mark.parametrize("name", LOSSES)

LABELS = np.arange(12) % 4


def images():
    random = np.random.default_rng(0)
    return random.normal(size=(12, 6)).astype("float32")


def encoder():
    """Embeddings of six numbers, and a histogram of four bins."""
    inputs = keras.Input((6,))
    embedding = keras.layers.Dense(5, name="embedding")(inputs)
    histogram = keras.layers.Dense(4, "softmax", name="histogram")(inputs)
    return keras.Model(inputs, {"embedding": embedding, "histogram": histogram})


def proxies():
    """Two points a class; their initial values are those of the seed."""
    return gsp.layers.ClassProxies(4, proxies_per_class=2)


def arrays(weights):
    return [np.array(keras.ops.convert_to_numpy(weight)) for weight in weights]


def assert_moved(weights, before):
    assert weights
    for new, old in zip(weights, before, strict=True):
        assert np.all(np.isfinite(new))
        assert np.any(new != old)


@every_case
def test_any_numbers_are_labels(case):
    labels, inputs = table(case).batch()
    loss = make(case)
    expected = loss(labels, inputs)
    forms = [
        labels.astype("float32"),
        labels.astype("int32")[:, None],
        labels.tolist(),
    ]
    if case in PAIR_LOSSES:  # To proxies a label is the number of a row.
        forms += [-labels]
    for form in forms:
        np.testing.assert_array_equal(loss(form, inputs), expected)


@every_case
def test_names_nan_and_large_ids_are_no_labels_of_a_batch(case):
    loss, (labels, inputs) = make(case), table(case).batch()
    with pytest.raises(TypeError, match="numbers. Received: strings"):
        loss(labels.astype(str), inputs)
    with pytest.raises(ValueError, match="32 bits. Received: 1099511627776"):
        loss(np.full(len(inputs), 2**40), inputs)
    nan = np.where(np.arange(len(inputs)) == 3, np.nan, 1.0)
    with pytest.raises(ValueError, match="`labels` must .*(nan|NaN)"):
        loss(nan, inputs)
    if case in PAIR_LOSSES:
        ones = np.ones(len(inputs))
        with pytest.raises(ValueError, match="`labels` must not be NaN"):
            loss.between(nan, inputs, ones, inputs)


@every_case
def test_sample_weights_multiply_the_terms_of_their_samples(case):
    labels, inputs = table(case).batch()
    weights = np.linspace(0.0, 2.0, len(labels))
    terms = make(case, reduction=None)(labels, inputs)
    assert terms.shape == labels.shape
    value = make(case)(labels, inputs, sample_weight=weights)
    expected = np.mean(keras.ops.convert_to_numpy(terms) * weights)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@every_case
def test_value_and_gradient_are_always_finite(case):
    """Of a batch, of one sample, and of equal, opposite and huge vectors."""
    spread = table(case).batch()[1][:4].astype("float32")
    ends = [spread**0, np.sign(spread)]
    if case in PAIR_LOSSES:  # One point, opposite ones, any length.
        ends = [spread[[0] * 4], spread[[0] * 4], 1e15 * spread, 1e-15 * spread]
        ends[1][::2] *= -1.0
    loss = make(case)
    for inputs in (spread, spread[:1], 0.0 * spread, *ends):
        for labels in ([0, 1, 2, 3], [2, 2, 2, 2], [4, 4, 0, 0]):
            labels = labels[: len(inputs)]
            value = loss(labels, inputs)
            assert np.isfinite(value)
            expected = value
            if case in PROXY_LOSSES:
                expected = proxy_oracle.oracle(case, labels, inputs)
            elif len(inputs) == 1:
                expected = 0.0
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
            (slope,) = gradients(lambda x, y=labels: loss(y, x), inputs)
            assert np.all(np.isfinite(slope))


@pytest.mark.slow
def test_all_train_in_one_compiled_model_and_are_saved_with_it(tmp_path):
    """In half precision; a head per loss, so that one graph holds them all."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((6,))
    outputs = {}
    for name in LOSSES:
        outputs[name] = keras.layers.Dense(5, use_bias=False)(inputs)
        if name in PROXY_LOSSES:
            outputs[name] = proxies()(outputs[name])
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.01), loss=LOSSES, jit_compile=False)
    before = arrays(model.trainable_weights)
    labels = dict.fromkeys(LOSSES, LABELS)
    logs = model.train_on_batch(images(), labels, return_dict=True)
    assert np.all(np.isfinite(list(logs.values())))
    assert_moved(arrays(model.trainable_weights), before)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for name, loss in LOSSES.items():
        assert type(loaded.loss[name]) is type(loss)
        assert loaded.loss[name].get_config() == loss.get_config()


@pytest.mark.parametrize("name", gsp.losses.__all__)
def test_the_config_holds_every_argument(name):
    kind, triplet = getattr(gsp.losses, name), gsp.losses.TripletLoss()
    needed = {"CrossBatchLoss": [triplet], "MatryoshkaLoss": [triplet, (4, 2)]}
    config = kind(*needed.get(name, [])).get_config()
    arguments = {*inspect.signature(kind).parameters} - {"kwargs"}
    assert config.keys() >= arguments
    assert kind.from_config(config).get_config() == config


@every_loss
def test_trains_in_a_learner_with_all_that_it_can_use(name):
    """Proxies, a memory, cross-batch learning and anchors."""
    parts = {}
    if name in PAIR_LOSSES:
        parts = {
            "memory": gsp.layers.EmbeddingMemory(20),
            "in_batch_weight": 1.0,
        }
    learner = gsp.models.MetricLearner(
        encoder(),
        proxies=proxies(),
        regularizer=gsp.losses.CrossBatchLoss(LOSSES[name]),
        regularizer_weight=0.5,
        anchor_weight=0.1,
        seed=0,
        **parts,
    )
    # Tracing takes longer than two steps.
    learner.compile(
        keras.optimizers.SGD(0.01), loss=LOSSES[name], run_eagerly=True
    )
    learner.train_on_batch(images(), LABELS)
    before = arrays(learner.trainable_weights)
    assert np.isfinite(learner.train_on_batch(images(), LABELS))
    assert_moved(arrays(learner.trainable_weights), before)
    assert np.isfinite(learner.test_on_batch(images(), LABELS))


def test_a_learner_skips_an_ignored_class():
    parts = {"proxies": proxies(), "in_batch_weight": 0.5}
    learner = gsp.models.MetricLearner(encoder(), **parts)
    embeddings = learner(images())["embedding"]

    def value(labels, **arguments):
        learner.compile(loss=gsp.losses.ContrastiveLoss(**arguments))
        outputs = embeddings[: len(labels)]
        return learner.compute_loss(y=labels, y_pred=outputs)

    found = value(np.where(np.arange(12) < 8, LABELS, -1), ignore_class=-1)
    np.testing.assert_allclose(found, value(LABELS[:8]), rtol=1e-5)


def test_arguments_are_kept_as_they_are_and_named_where_they_are_not():
    class Kept(gsp.losses.ContrastiveLoss):
        def __init__(self, factors=None, **kwargs):
            super().__init__(**kwargs)
            if factors is not None:
                self.factors = factors

    loss = Kept({"name": 0.5, "sizes": [2, 1]})  # A dict stays a dict.
    config = json.loads(json.dumps(loss.get_config()))
    assert Kept.from_config(config).factors == loss.factors
    with pytest.raises(AttributeError, match="no attribute 'factors'"):
        Kept().get_config()
