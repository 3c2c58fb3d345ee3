"""Classes without images are predicted from vectors that describe them."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp


def world(num_classes=7, noise=0.1):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(num_classes, 4))
    labels = np.repeat(np.arange(num_classes), 6)
    images = vectors[labels] @ rng.normal(size=(4, 5))
    images += noise * rng.normal(size=images.shape)
    return images.astype("float32"), labels, vectors


def encoder_of(histogram=True):
    inputs = keras.Input((5,))
    outputs = {"embedding": keras.layers.Rescaling(0.0)(inputs)}
    if histogram:
        outputs["histogram"] = keras.layers.Identity()(inputs)
    else:
        outputs["embedding"] = keras.layers.Identity()(inputs)
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize("histogram", [True, False])
def test_similarities_are_those_of_the_ridge_regression(histogram):
    images, labels, vectors = world()
    seen = labels < 5
    names = np.array(["a", "b", "c", "d", "e", "f", "g"])[labels]
    classifier = gsp.models.ZeroShotClassifier(encoder_of(histogram), ridge=0.3)
    classifier.fit(images[seen], names[seen], vectors[:5])
    # The dual form, as in the paper: Y' (Z Z' + eps I)^-1 Z z.
    z, y = images[seen].astype("float64"), vectors[labels[seen]]
    mixing = np.linalg.solve(z @ z.T + 0.3 * np.eye(len(z)), y)
    expected = images[~seen] @ z.T @ mixing
    found = classifier.similarities(images[~seen], vectors[5:])
    for row, cosines in zip(expected, found, strict=True):
        for vector, cosine in zip(vectors[5:], cosines, strict=True):
            dot = row @ vector / np.linalg.norm(row) / np.linalg.norm(vector)
            assert cosine == pytest.approx(dot, abs=1e-4)

    # Unseen classes are found.
    fitted = classifier.fit(images[seen], labels[seen], vectors[:5])
    found = fitted.predict(images[~seen], vectors[5:])
    assert (found == labels[~seen] - 5).mean() > 0.9


def test_refusals():
    images, labels, vectors = world()
    make = gsp.models.ZeroShotClassifier
    with pytest.raises(ValueError, match="ridge=0.0"):
        make(encoder_of(), ridge=0.0)
    with pytest.raises(RuntimeError, match="`fit` before"):
        make(encoder_of()).predict(images, vectors)
    with pytest.raises(ValueError, match=r"\(6, 4\) for 7 classes"):
        make(encoder_of()).fit(images, labels, vectors[:6])
    with pytest.raises(ValueError, match="41 and 42"):
        make(encoder_of()).fit(images[1:], labels, vectors)
    fitted = make(encoder_of()).fit(images, labels, vectors)
    with pytest.raises(ValueError, match=r"\(classes, 4\).*\(7, 3\)"):
        fitted.predict(images, vectors[:, :3])
