"""Fingerprints of embedding spaces: what shares one, what is refused."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import ExactIndex, MatchThreshold
from keras_gsp.retrieval.space import (
    SpaceFingerprint,
    check_space,
    space_fingerprint,
)


def encoder(seed=0, size=4, normalization="l2", ratio=0.5, **options):
    keras.utils.set_random_seed(seed)
    backbone = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Conv2D(6, 3, strides=2)]
    )
    return gsp.models.build_encoder(
        backbone,
        embedding_size=size,
        pooling=gsp.layers.GeneralizedSumPooling(3, ratio),
        normalization=normalization,
        **options,
    )


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype("uint8")
DATA = IMAGES, np.array(list("aabbcc"))
CUT = {"preprocessing": gsp.data.Preprocessing(8, 10)}


def test_whatever_moves_embeddings_is_another_space():
    space, again = (space_fingerprint(encoder()) for _ in range(2))
    assert space == again
    ball, less = {"normalization": "ball"}, {"ratio": 0.4}
    for options in ({"seed": 1}, {"size": 5}, ball, less, CUT):
        assert space_fingerprint(encoder(**options)) != space
    model = encoder()
    model.trainable = False
    model.compile("adam", "mse")
    assert space_fingerprint(model) == space
    assert space.embedding_size == 4 and space.normalization == "l2"
    cut = {"height": 8, "width": 8, "shorter_side": 10}
    cut["background"] = [255, 255, 255]
    assert space_fingerprint(encoder(**CUT)).preprocessing == cut
    assert space_fingerprint(lambda images: images) is None


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_saved_encoder_has_its_space_in_every_process(backend, tmp_path):
    model = encoder(**CUT)
    model.save(tmp_path / "encoder.keras")
    code = """
import json, sys, keras
from keras_gsp.retrieval.space import space_fingerprint
model = keras.models.load_model(sys.argv[1])
print(json.dumps(space_fingerprint(model).get_config()))
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "encoder.keras")],
        capture_output=True,
        text=True,
        check=True,
        env={"KERAS_BACKEND": backend, "PATH": ""},
    )
    config = json.loads(found.stdout.splitlines()[-1])
    assert SpaceFingerprint.from_config(config) == space_fingerprint(model)


def test_an_index_keeps_its_space_and_refuses_another_encoder(tmp_path):
    old, new = encoder(), encoder(seed=1)
    index = ExactIndex.from_encoder(old, DATA)
    index.save(tmp_path / "index")
    index = ExactIndex.load(tmp_path / "index")
    assert index.space == space_fingerprint(old)
    check_space(old, index)
    with pytest.raises(ValueError, match="another encoder: weights") as error:
        check_space(new, index)
    assert "embedding_size" not in str(error.value)
    assert "gsp.retrieval.upgrade" in str(error.value)
    bare = ExactIndex(np.eye(4))  # fits every encoder
    check_space(encoder(), bare)
    bare.save(tmp_path / "bare")
    assert ExactIndex.load(tmp_path / "bare").space is None


def test_what_belongs_to_another_encoder_is_refused(tmp_path):
    old, new = encoder(), encoder(seed=1)
    held_out = old.predict_on_batch(IMAGES)
    threshold = MatchThreshold.calibrated(
        held_out, DATA[1], false_accept_rate=0.5, encoder=old
    )
    config = json.loads(json.dumps(threshold.get_config()))
    assert MatchThreshold.from_config(config) == threshold
    index = ExactIndex.from_encoder(old, DATA, match=threshold)
    assert index.search(held_out, 1).is_match is not None
    other = ExactIndex.from_encoder(new, DATA)
    with pytest.raises(ValueError, match="`match` must hold"):
        other.match = threshold
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(ValueError, match="`index` must hold"):
            gsp.retrieval.export_retriever(new, index, tmp_path / "export")
        assert not list(tmp_path.iterdir())
