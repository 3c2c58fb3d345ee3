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
    "contrastive_batch_hard": lambda: gsp.losses.ContrastiveLoss(
        miner="batch_hard"
    ),
    "contrastive_mined": lambda: gsp.losses.ContrastiveLoss(
        miner="multi_similarity"
    ),
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
    # Closer than this the force of unequal pairs throws SGD far off.
    "potential_field": lambda: gsp.losses.PotentialFieldLoss(
        1.5, 2.0, smallest_distance=0.3
    ),
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
    """Two points a class; their initial values are those of the seed."""
    return gsp.layers.ClassProxies(4, proxies_per_class=2)


@every_loss
def test_config_says_everything(name):
    loss = LOSSES[name]()
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()


@pytest.fixture(scope="module")
def heads():
    """The loss of each head of one model, and its weights around a step.

    A head for each loss, so that all of them are compiled once, together.
    """
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((6,))
    outputs, losses = {}, {}
    for name, loss in LOSSES.items():
        outputs[name] = keras.layers.Dense(5, use_bias=False)(inputs)
        if name in PROXY_LOSSES:
            outputs[name] = proxies()(outputs[name])
        losses[name] = loss()
    weights = {
        name: keras.Model(inputs, output).trainable_weights
        for name, output in outputs.items()
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.SGD(0.01),
        loss=losses,
        jit_compile=trains_compiled(True),
    )

    def values():
        return {
            name: [
                np.array(keras.ops.convert_to_numpy(weight)) for weight in found
            ]
            for name, found in weights.items()
        }

    before = values()
    logs = model.train_on_batch(
        images(), dict.fromkeys(LOSSES, LABELS), return_dict=True
    )
    keras.config.set_dtype_policy("float32")
    return logs, before, values()


@every_loss
def test_trains_in_a_plain_compile_under_xla_in_half_precision(name, heads):
    logs, before, after = heads
    assert np.isfinite(logs[f"{name}_loss"])
    assert_moved(after[name], before[name])


@every_loss
def test_trains_in_a_learner_with_all_that_it_can_use(name):
    """Alternating proxies, a memory, cross-batch learning and anchors."""
    parts = {}
    if name in PAIR_LOSSES:
        parts = {
            "memory": gsp.layers.EmbeddingMemory(20),
            "in_batch_weight": 1.0,
        }
    learner = gsp.models.MetricLearner(
        encoder(),
        proxies=proxies(),
        regularizer=gsp.losses.CrossBatchLoss(LOSSES[name]()),
        regularizer_weight=0.5,
        anchor_weight=0.1,
        seed=0,
        **parts,
    )
    learner.compile(
        keras.optimizers.SGD(0.01),
        loss=LOSSES[name](),
        # Tracing takes longer than three steps; JAX would trace them all.
        run_eagerly=ON_TENSORFLOW,
    )
    weights = WeightsAroundAnEpoch()
    history = learner.fit(
        images(),
        LABELS,
        batch_size=12,
        epochs=3,
        verbose=0,
        callbacks=[
            FallingScores(),
            gsp.callbacks.ChanceConstrainedProgramming(
                (images(), LABELS), pool_size=2, patience=1
            ),
            weights,
        ],
    ).history
    assert np.all(np.isfinite(history["loss"]))
    assert history["ccp_problem"] == [1, 1, 2]
    assert_moved(weights.after, weights.before)
    assert np.isfinite(learner.test_on_batch(images(), LABELS))


class WeightsAroundAnEpoch(keras.callbacks.Callback):
    """Notes the weights before and after the steps of the last epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.before = self.trained()

    def on_epoch_end(self, epoch, logs=None):
        self.after = self.trained()

    def trained(self):
        return [
            np.array(keras.ops.convert_to_numpy(weight))
            for weight in self.model.trainable_weights
        ]


class FallingScores(keras.callbacks.Callback):
    """Scores that never improve, so that every evaluation counts."""

    def on_epoch_end(self, epoch, logs=None):
        logs["val_map_at_r"] = -float(epoch)


def assert_moved(weights, before):
    assert weights
    for new, old in zip(weights, before, strict=True):
        assert np.all(np.isfinite(new))
        assert np.any(new != old)


@pytest.fixture(scope="module")
def learner_loss():
    """The loss of a training step, with proxies or within the batch alone."""
    keras.utils.set_random_seed(0)
    parts = {"proxies": proxies(), "in_batch_weight": 0.5}
    learners = [
        gsp.models.MetricLearner(encoder()),
        gsp.models.MetricLearner(encoder(), **parts),
    ]
    embeddings = [learner(images())["embedding"] for learner in learners]

    def value(loss, labels, with_proxies=False):
        learner = learners[with_proxies]
        learner.compile(loss=loss)
        outputs = embeddings[with_proxies][: len(labels)]
        return learner.compute_loss(y=labels, y_pred=outputs)

    return value


@every_pair_loss
def test_a_learner_is_told_in_four_ways_which_pairs_are_positive(
    name, learner_loss
):
    loss = LOSSES[name]()
    is_positive = LABELS[:, None] == LABELS
    expected = learner_loss(loss, LABELS)
    for kind, labels in (
        ("class", is_positive),
        ("pairs", is_positive.astype("float32")),
        ("multi_hot", np.eye(4, dtype="int64")[LABELS]),
    ):
        found = learner_loss(of_kind(loss, label_kind=kind), labels)
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=kind)
    np.testing.assert_allclose(
        learner_loss(of_kind(loss, label_kind=kind), labels, True),
        learner_loss(loss, LABELS, True),
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", sorted({*PAIR_LOSSES} - {"margin_drawn"}))
def test_a_learner_passes_over_an_ignored_label(name, learner_loss):
    """With proxies and within the batch; other shapes draw others."""
    loss = of_kind(LOSSES[name](), ignored_label=-1)
    labels = np.where(np.arange(12) < 8, LABELS, -1)
    np.testing.assert_allclose(
        learner_loss(loss, labels, True),
        learner_loss(loss, labels[:8], True),
        rtol=1e-5,
    )


def of_kind(loss, **changes):
    return type(loss).from_config({**loss.get_config(), **changes})


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
