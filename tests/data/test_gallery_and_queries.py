"""A gallery and its queries are cut alike, whatever serves them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data import Preprocessing, image_batches
from keras_gsp.data.preprocessing import preprocessing_of

CUT = Preprocessing(24, 36)
NAMES = np.array(list("aabbccdd"))


def backbone(side=24):
    return keras.Sequential(
        [
            keras.Input((side, side, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
        ]
    )


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    paths = []
    for number in range(len(NAMES)):
        pixels = rng.integers(0, 256, (6, 8, 3), dtype="uint8")
        picture = Image.fromarray(pixels).resize((64, 48))
        paths.append(str(folder / f"{number}.png"))
        picture.save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    keras.utils.set_random_seed(0)
    built = gsp.models.build_encoder(
        backbone(),
        embedding_size=8,
        pooling=gsp.layers.GeneralizedSumPooling(4),
        preprocessing=CUT,
    )
    file = tmp_path_factory.mktemp("encoder") / "encoder.keras"
    built.save(file)
    return keras.models.load_model(file)


@pytest.fixture(scope="module")
def index(encoder, photos):
    gallery = image_batches(photos, NAMES, preprocessing=CUT)
    return gsp.retrieval.ExactIndex.from_encoder(encoder, gallery)


def test_files_are_cut_as_the_encoder_expects(encoder, index, photos):
    of_files = gsp.retrieval.ExactIndex.from_encoder(encoder, (photos, NAMES))
    np.testing.assert_array_equal(
        of_files.gallery.embeddings, index.gallery.embeddings
    )


def test_what_contradicts_the_encoder_is_refused(encoder, photos):
    other = image_batches(photos, NAMES, preprocessing=Preprocessing(24, 24))
    with pytest.raises(ValueError, match="side=36.*dataset.*side=24"):
        gsp.retrieval.ExactIndex.from_encoder(encoder, other)
    with pytest.raises(ValueError, match=r"\(20, 20\) pixels.*size=24"):
        gsp.models.build_encoder(backbone(20), preprocessing=CUT)


def test_the_gallery_decides_for_an_encoder_that_does_not_know(
    photos, tmp_path
):
    keras.utils.set_random_seed(0)
    plain = gsp.models.build_encoder(backbone(), embedding_size=8)
    with pytest.raises(ValueError, match="file names"):
        gsp.retrieval.ExactIndex.from_encoder(plain, (photos, NAMES))
    gallery = image_batches(photos, NAMES, preprocessing=CUT)
    index = gsp.retrieval.ExactIndex.from_encoder(plain, gallery)
    index.save(tmp_path / "index")
    index = gsp.retrieval.ExactIndex.load(tmp_path / "index")
    gsp.retrieval.export_retriever(plain, index, tmp_path / "x")
    served = tf.saved_model.load(str(tmp_path / "x"))
    contents = tf.constant([open(path, "rb").read() for path in photos])
    found = served.signatures["search"](contents)
    names = [f"{number}.png".encode() for number in range(len(NAMES))]
    assert found["ids"].numpy()[:, 0].tolist() == names
    assert np.max(found["distances"][:, 0]) < 1e-3


def test_the_record_passes_through_clones_and_learners(encoder):
    clone = keras.models.clone_model(encoder)
    learner = gsp.models.MetricLearner(encoder)
    assert preprocessing_of(clone) == preprocessing_of(learner) == CUT
    assert preprocessing_of(backbone()) is None
    # Explanations still find the pooling.
    pixels = np.zeros((1, 24, 24, 3))
    assert gsp.retrieval.explain(encoder, pixels, pixels)


def test_a_learner_fits_a_data_set_without_a_warning(recwarn):
    learner = gsp.models.MetricLearner(
        gsp.models.build_encoder(backbone(), embedding_size=4)
    )
    learner.compile("sgd", gsp.losses.ContrastiveLoss(), run_eagerly=True)
    labels = np.repeat([0, 1], 2)
    pixels = np.zeros((4, 30, 30, 3), "uint8")
    batches = image_batches(pixels, labels, preprocessing=Preprocessing(24, 24))
    learner.fit(batches, verbose=0)
    assert not [w for w in recwarn if "shuffle" in str(w.message)]
