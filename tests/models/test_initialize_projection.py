"""A projection starts from learned whitening or PCA of the features."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.models import projection_initialization

CHANNELS, SIZE = 6, 3


def pictures(count=40):
    """Images whose three colors vary unequally around means."""
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(count, 1, 1, 3)) * [3.0, 1.0, 0.3]
    return rng.normal(size=(count, 8, 8, 3)) * 0.2 + spread + [1.0, 5.0, -2.0]


def build(**options):
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Conv2D(CHANNELS, 2, strides=2)]
    )
    options = {"embedding_size": SIZE, "normalization": None} | options
    return backbone, gsp.models.build_encoder(backbone, **options)


def principal(vectors):
    """Leading eigenvectors by a loop of outer products, and the mean."""
    mean = np.mean(vectors, axis=0)
    covariance = np.zeros((CHANNELS, CHANNELS))
    for vector in vectors:
        covariance += np.outer(vector - mean, vector - mean) / len(vectors)
    return mean, np.linalg.eigh(covariance)[1][:, ::-1][:, :SIZE]


@pytest.mark.parametrize("pool_first", [False, True])
def test_embeddings_are_principal_components(pool_first):
    pooling = keras.layers.GlobalMaxPooling2D() if pool_first else None
    backbone, encoder = build(pooling=pooling)
    images = pictures()
    gsp.models.initialize_projection(encoder, images)
    pool = np.max if pool_first else np.mean
    features = pool(np.asarray(backbone(images), "float64"), axis=(1, 2))
    mean, kernel = principal(features)
    # A projection of pooled vectors has no bias.
    expected = (features - (0.0 if pool_first else mean)) @ kernel
    found = np.asarray(encoder(images))
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-4)


@pytest.mark.parametrize(
    "options, shrinkage", [({}, 0.8), ({"shrinkage": 0.1}, 0.1)]
)
def test_labels_give_the_embeddings_of_learned_whitening(options, shrinkage):
    backbone, encoder = build(normalization="l2")
    images, labels = pictures(), np.arange(40) % 7
    batches = [(images[:25], labels[:25]), (images[25:], labels[25:])]
    gsp.models.initialize_projection(encoder, batches, **options)
    features = np.asarray(backbone(images)).mean(axis=(1, 2))
    whitening = gsp.layers.Whitening(SIZE, shrinkage=shrinkage)
    whitening.adapt(features, labels)
    np.testing.assert_allclose(encoder(images), whitening(features), atol=1e-4)
    kernel = np.asarray(encoder.get_layer("projection").kernel)
    assert np.square(kernel).sum() == pytest.approx(SIZE, rel=1e-5)


def test_prototypes_are_projected_features_of_the_images():
    backbone, encoder = build(
        pooling=gsp.layers.GeneralizedSumPooling(5, name="pooling")
    )
    images = pictures()
    gsp.models.initialize_projection(encoder, images)
    local = np.asarray(encoder.get_layer("projection")(backbone(images)))
    local = local.reshape(-1, SIZE)
    norms = np.linalg.norm(local, axis=1, keepdims=True)
    inside = local / np.maximum(norms, 1.0)
    prototypes = np.asarray(encoder.get_layer("pooling").prototypes)
    away = np.abs(prototypes[:, None] - inside[None]).sum(-1).min(axis=1)
    assert away.max() < 1e-5


def test_without_a_projection_only_prototypes_are_chosen():
    _, encoder = build(
        embedding_size=None,
        pooling=gsp.layers.GeneralizedSumPooling(5, name="pooling"),
    )
    assert encoder.output_shape == (None, CHANNELS)
    before = np.asarray(encoder.get_layer("pooling").prototypes)
    gsp.models.initialize_projection(encoder, pictures())
    after = np.asarray(encoder.get_layer("pooling").prototypes)
    assert np.abs(after - before).max() > 0.1


def test_data_sets_give_the_start_of_the_array(monkeypatch):
    monkeypatch.setattr(projection_initialization, "MAX_IMAGES", 40)
    images, labels = pictures(), np.arange(40) % 7
    starts = []
    for given in (
        images,
        (images, labels),
        keras.ops.convert_to_tensor(images),
        [(images[:25], labels[:25]), (images[25:], labels[25:])],
        # Of a data set the first images count.
        [images, images + 5.0],
    ):
        _, encoder = build()
        # PCA needs no labels.
        gsp.models.initialize_projection(encoder, given, shrinkage=1.0)
        starts.append(encoder.get_layer("projection").get_weights())
    for kernel, bias in starts[1:]:
        np.testing.assert_allclose(kernel, starts[0][0], atol=1e-4)
        np.testing.assert_allclose(bias, starts[0][1], atol=1e-4)
