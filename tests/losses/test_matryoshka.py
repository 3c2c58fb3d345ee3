"""Matryoshka adds up a loss over normalized leading parts."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.losses.metric_loss import References, StepParts
from tests.losses import proxy_oracle

LABELS = np.array([0, 0, 1, 1, 2, 2])


def embeddings(seed=0, size=8):
    random = np.random.default_rng(seed)
    return random.normal(size=(6, size)).astype("float32")


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def make_encoder(normalization="l2"):
    normalize = EmbeddingNormalization(normalization)
    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8), normalize]
    )


def test_is_the_sum_over_normalized_parts():
    inner = gsp.losses.ContrastiveLoss()
    loss = gsp.losses.MatryoshkaLoss(inner, (8, 3, 2))
    rows = embeddings()
    expected = sum(
        float(inner(LABELS, unit(rows[:, :size]))) for size in (8, 3, 2)
    )
    np.testing.assert_allclose(float(loss(LABELS, rows)), expected, rtol=1e-5)


def test_proxies_and_references_are_cut_alike():
    proxies = gsp.layers.ClassProxies(3, proxies_per_class=2)
    rows = embeddings()
    proxies(rows)
    loss = gsp.losses.MatryoshkaLoss(gsp.losses.ProxyNCALoss(0.2), (8, 4))
    found = loss.training_loss(StepParts(LABELS, rows, proxies=proxies))
    weights = keras.ops.convert_to_numpy(proxies.proxies).reshape(6, 8)
    expected = 0.0
    for size in (8, 4):
        cosines = unit(rows[:, :size]) @ unit(weights[:, :size]).T
        expected += proxy_oracle.proxy_nca(
            LABELS, cosines.reshape(6, 3, 2), temperature=0.2
        )
    np.testing.assert_allclose(float(found), expected, rtol=1e-4)
    inner = gsp.losses.ContrastiveLoss()
    loss = gsp.losses.MatryoshkaLoss(inner, (8, 4))
    others = embeddings(1)
    parts = StepParts(LABELS, rows, references=(References(LABELS, others),))
    expected = sum(
        float(inner.between(LABELS, rows[:, :m], LABELS, others[:, :m]))
        for m in (8, 4)
    )
    found = float(loss.training_loss(parts))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("normalization", ["l2", "ball", None])
def test_a_cut_encoder_gives_normalized_parts(normalization, tmp_path):
    encoder = make_encoder(normalization)
    images = np.random.default_rng(0).normal(size=(6, 5))
    whole = encoder.predict(images, verbose=0)
    cut = gsp.models.truncate_encoder(encoder, 3)
    expected = whole[:, :3]
    if normalization == "l2":
        expected = unit(expected)
    found = cut.predict(images, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    cut.save(tmp_path / "cut.keras")
    loaded = keras.saving.load_model(tmp_path / "cut.keras")
    np.testing.assert_allclose(loaded(images), found, atol=1e-6)
    assert gsp.models.truncate_encoder(encoder, None) is encoder
