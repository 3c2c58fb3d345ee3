"""ONNX and LiteRT files give the encoder's embeddings, without TensorFlow."""

import sys

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import (
    PortableEncoder,
    export_litert,
    export_onnx,
    verify_export,
)
from tests.retrieval.serving.served_artefact import small_encoder

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="exports are TensorFlow's"
)
MATCH = gsp.retrieval.MatchThreshold(0.5, 0.01, 1.0, 1, 1)
LABELS = ["cat", "cat", "cow", "cow", "dog"]
LARGEST = {None: 1e-5, "float16": 5e-3, "int8": 0.05}
FACTS = {"scores": {"map_at_r": 0.5}, "recipe": {"dataset": "glyphs"}}
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 24, 24, 3))


def skip_without_onnx(export):
    if export is export_onnx:
        pytest.importorskip("tf2onnx")
        pytest.importorskip("onnxruntime")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("export", "quantization"),
    [
        (export_onnx, None),
        (export_onnx, "int8"),
        (export_litert, None),
        (export_litert, "float16"),
        (export_litert, "int8"),
    ],
)
def test_files_agree_with_keras_and_carry_their_gallery(
    export, quantization, tmp_path
):
    skip_without_onnx(export)
    keras.utils.set_random_seed(0)
    encoder = small_encoder(return_histogram=True)
    index = gsp.retrieval.ExactIndex.from_encoder(
        encoder, (IMAGES.astype("float32"), LABELS), match=MATCH
    )
    options = {"sample_images": IMAGES, "quantization": quantization}
    folder = tmp_path / "e"
    export(encoder, folder, index=index, metadata=FACTS, **options)
    portable, largest = PortableEncoder(folder), LARGEST[quantization]
    expected = encoder.predict(IMAGES, verbose=0)["embedding"]
    for rows in (slice(5), slice(1), slice(1, 4)):  # the batch is dynamic
        found = portable.embed(IMAGES[rows])
        np.testing.assert_allclose(found, expected[rows], atol=largest)
    saved = gsp.retrieval.ExactIndex.load(folder / "gallery")
    np.testing.assert_allclose(saved.gallery.embeddings, expected, atol=1e-6)
    assert saved.gallery.labels.tolist() == LABELS and saved.match == MATCH
    facts = portable.facts
    assert facts["match_threshold"] == MATCH.get_config()
    assert facts["format"] == export.__name__.removeprefix("export_")
    assert facts["gallery_size"] == facts["compared_images"] == 5
    assert facts["largest_difference"] <= largest
    card = (folder / "README.md").read_text()
    for words in ("# Model card", "Intended use", "Limits", "0.5000", "glyphs"):
        assert words in card
    assert verify_export(folder)["num_canaries"] == 5
    with pytest.raises(ValueError, match="24, 24, 3"):
        portable.embed(IMAGES[:, :20])
    with pytest.raises(FileExistsError, match="overwrite"):
        export(encoder, folder)
    (path,) = folder.glob("encoder.*")
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(bytes(contents))
    with pytest.raises(ValueError, match=f"{path.name}: changed"):
        PortableEncoder(folder)
    with pytest.raises(FileNotFoundError, match="encoder.onnx"):
        PortableEncoder(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("export", [export_onnx, export_litert])
def test_two_looks_are_exported(export, tmp_path):
    skip_without_onnx(export)
    cut = gsp.data.Preprocessing((48, 24), None)
    looks = gsp.models.TwoLooks(small_encoder(), window=0.5, preprocessing=cut)
    images = np.repeat(IMAGES, 2, axis=1)
    export(looks, tmp_path / "e", sample_images=images)
    found = PortableEncoder(tmp_path / "e").embed(images)
    np.testing.assert_allclose(found, looks(images), atol=1e-5)


@pytest.mark.parametrize("export", [export_onnx, export_litert])
def test_an_operation_that_the_format_lacks_is_named(export, tmp_path):
    skip_without_onnx(export)
    encoder = gsp.models.build_encoder(
        keras.Sequential(
            [keras.Input((24, 24, 3)), keras.layers.MaxPooling2D()]
        ),
        embedding_size=2,
        pooling=gsp.layers.GeneralizedMaxPooling(),
    )
    with pytest.raises(RuntimeError, match="export_encoder.*Cholesky"):
        export(encoder, tmp_path / "e", sample_images=IMAGES)
    assert not list(tmp_path.iterdir())


def test_onnx_without_a_converter_names_the_extra(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"needs tf2onnx.*\[onnx\]"):
        export_onnx(small_encoder(), tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_and_files_that_differ_are_refused(tmp_path):
    images = {"sample_images": IMAGES}
    for options, error, message in [
        ({"quantization": "int4"}, ValueError, "quantization='int4'"),
        ({"quantization": "int8"}, ValueError, "sample_images=None"),
        ({"sample_images": np.zeros((2, 9, 9, 3))}, ValueError, "2, 9, 9, 3"),
        ({"index": gsp.retrieval.ExactIndex()}, RuntimeError, "empty"),
        ({"crop_fraction": 2.0}, ValueError, "crop_fraction=2.0"),
        ({"whole": True}, TypeError, "whole"),
        (
            {"quantization": "float16", "largest_distance": 1e-9, **images},
            RuntimeError,
            "5 of 5 that moved: 0: ",
        ),
    ]:
        with pytest.raises(error, match=message):
            export_litert(small_encoder(), tmp_path / "e", **options)
    assert list(tmp_path.iterdir()) == []
