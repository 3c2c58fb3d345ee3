"""Every loss in every place where it is defined: a new loss is one line."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.compiled import trains_compiled

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

PAIR_LOSSES = {
    "contrastive": gsp.losses.ContrastiveLoss,
    "cosine_contrastive": gsp.losses.CosineContrastiveLoss,
    "triplet": gsp.losses.TripletLoss,
    "triplet_semi_hard": lambda: gsp.losses.TripletLoss(miner="semi_hard"),
    "multi_similarity": gsp.losses.MultiSimilarityLoss,
    "supervised_contrastive": gsp.losses.SupConLoss,
    "ntxent": gsp.losses.NTXentLoss,
    "circle": gsp.losses.CircleLoss,
    "lifted_structure": gsp.losses.LiftedStructureLoss,
    "n_pair": gsp.losses.NPairLoss,
    "margin": gsp.losses.MarginLoss,
    "margin_drawn": lambda: gsp.losses.MarginLoss(
        miner="distance_weighted", seed=0
    ),
    "potential_field": lambda: gsp.losses.PotentialFieldLoss(1.5),
    "smooth_ap": lambda: gsp.losses.SmoothAPLoss(0.1),
    "recall_at_k": lambda: gsp.losses.RecallAtKLoss(temperature=0.1),
}
PROXY_LOSSES = {
    "proxy_nca": gsp.losses.ProxyNCALoss,
    "proxy_anchor": gsp.losses.ProxyAnchorLoss,
    "soft_triple": gsp.losses.SoftTripleLoss,
    "arcface": gsp.losses.ArcFaceLoss,
    "cosface": gsp.losses.CosFaceLoss,
    "normalized_softmax": gsp.losses.NormalizedSoftmaxLoss,
}
LOSSES = {**PAIR_LOSSES, **PROXY_LOSSES}
every_loss = pytest.mark.parametrize("name", LOSSES)
every_pair_loss = pytest.mark.parametrize("name", PAIR_LOSSES)

LABELS = np.arange(12) % 4


def images():
    random = np.random.default_rng(0)
    return random.normal(size=(12, 6)).astype("float32")


def encoder():
    """Embeddings of six numbers, and a histogram of their four thirds."""
    inputs = keras.Input((6,))
    embedding = keras.layers.Dense(5, name="embedding")(inputs)
    histogram = keras.layers.Dense(4, "softmax", name="histogram")(inputs)
    return keras.Model(inputs, {"embedding": embedding, "histogram": histogram})


def proxies():
    return gsp.layers.ClassProxies(4, proxies_per_class=2)


@every_loss
def test_config_says_everything(name):
    loss = LOSSES[name]()
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()


@every_loss
def test_trains_in_a_plain_compile_under_xla_in_half_precision(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    last = [proxies()] if name in PROXY_LOSSES else []
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(5, use_bias=False), *last]
    )
    model.compile(
        keras.optimizers.SGD(0.01),
        loss=LOSSES[name](),
        jit_compile=trains_compiled(True),
    )
    before = [keras.ops.convert_to_numpy(w) for w in model.trainable_weights]
    assert np.isfinite(model.train_on_batch(images(), LABELS))
    for weight, old in zip(model.trainable_weights, before, strict=True):
        new = keras.ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(new))
        assert np.any(new != old), weight.path


@every_loss
def test_trains_in_a_learner_with_all_that_it_can_use(name):
    """Proxies, a memory, cross-batch learning and anchors at once."""
    parts = {"proxies": proxies()}
    if name in PAIR_LOSSES:
        parts |= {
            "memory": gsp.layers.EmbeddingMemory(20),
            "in_batch_weight": 1.0,
        }
    learner = gsp.models.MetricLearner(
        encoder(),
        regularizer=gsp.losses.CrossBatchLoss(LOSSES[name]()),
        regularizer_weight=0.5,
        anchor_weight=0.1,
        seed=0,
        **parts,
    )
    learner.compile(
        keras.optimizers.SGD(0.01), loss=LOSSES[name](), run_eagerly=True
    )
    before = [keras.ops.convert_to_numpy(w) for w in learner.trainable_weights]
    for _ in range(2):
        assert np.isfinite(learner.train_on_batch(images(), LABELS))
    assert np.isfinite(learner.test_on_batch(images(), LABELS))
    for weight, old in zip(learner.trainable_weights, before, strict=True):
        new = keras.ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(new))
        assert np.any(new != old), weight.path


@every_pair_loss
def test_trains_in_a_learner_on_several_classes_a_sample(name):
    classes = np.eye(4, dtype="int64")[LABELS]
    loss = LOSSES[name]()
    several = type(loss).from_config(
        {**loss.get_config(), "label_kind": "multi_hot"}
    )
    found = []
    for one, labels in ((loss, LABELS), (several, classes)):
        keras.utils.set_random_seed(0)
        learner = gsp.models.MetricLearner(
            encoder(), proxies=proxies(), in_batch_weight=0.5
        )
        learner.compile("sgd", loss=one, run_eagerly=True)
        found.append(learner.train_on_batch(images(), labels))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """The loss of a step on one device and on two, in a process of its own.

    TensorFlow splits the processor before it computes anything, or never.
    """
    path = tmp_path_factory.mktemp("replicas") / "losses.json"
    command = [sys.executable, "-m", "tests.losses.two_replicas", str(path)]
    subprocess.run(command, check=True, cwd=pathlib.Path(__file__).parents[2])
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="JAX sees the global batch")
@every_loss
def test_two_replicas_share_the_loss_of_the_global_batch(name, shares):
    one, two = shares[name]
    assert np.isfinite(two)
    if name != "margin_drawn":  # Samples in another order draw others.
        np.testing.assert_allclose(two, one, rtol=1e-5)
