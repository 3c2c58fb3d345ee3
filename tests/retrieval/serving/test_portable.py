"""ONNX and LiteRT files give the encoder's embeddings, without TensorFlow."""

import sys

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import PortableEncoder, export_litert, export_onnx
from tests.retrieval.serving.served_artefact import small_encoder

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="exports are TensorFlow's"
)
# Rounding of another engine's sums, on embeddings of length 1.
TOLERANCE = 1e-5
MATCH = gsp.retrieval.MatchThreshold(0.5, 0.01, 1.0, 1, 1)
LABELS = ["cat", "cat", "cow", "cow", "dog"]
LARGEST = {None: TOLERANCE, "float16": 5e-3, "int8": 0.1}


def exported(export, folder, **options):
    keras.utils.set_random_seed(0)
    encoder = small_encoder(return_histogram=True)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 24, 24, 3)).astype("float32")
    index = gsp.retrieval.ExactIndex.from_encoder(
        encoder, (images, LABELS), match=MATCH
    )
    export(encoder, folder / "e", index=index, **options)
    embeddings = encoder.predict(images, verbose=0)["embedding"]
    return images, embeddings


def check_folder(folder, images, embeddings, tolerance):
    portable = PortableEncoder(folder / "e")
    for rows in (slice(5), slice(1), slice(1, 4)):  # the batch is dynamic
        found = portable.embed(images[rows])
        np.testing.assert_allclose(found, embeddings[rows], atol=tolerance)
    gallery = folder / "e" / "gallery"
    index = gsp.retrieval.ExactIndex.load(gallery)
    rows = index.gallery.embeddings
    np.testing.assert_allclose(rows, embeddings, atol=1e-6)
    assert np.load(gallery / "labels.npy").tolist() == LABELS
    assert index.match == MATCH
    assert portable.facts["match_threshold"] == MATCH.get_config()
    card = (folder / "e" / "README.md").read_text()
    for words in ("# Model card", "Intended use", "Limits", "0.5000", "glyphs"):
        assert words in card
    with pytest.raises(ValueError, match="24, 24, 3"):
        portable.embed(images[:, :20])


def test_int8_spares_the_scales_of_batch_normalization(tmp_path):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    depthwise = layers.DepthwiseConv2D(3, use_bias=False)
    norm = layers.BatchNormalization()
    backbone = keras.Sequential([keras.Input((12, 12, 3)), depthwise, norm])
    # As in a pretrained network, whose channels differ by powers of ten.
    sizes = np.array([1e-3, 1.0, 1e-3])
    depthwise.set_weights([depthwise.get_weights()[0] / sizes[:, None]])
    norm.set_weights([sizes, np.zeros(3), np.zeros(3), np.ones(3)])
    encoder = gsp.models.build_encoder(backbone, embedding_size=4)
    images = 255 * np.random.default_rng(0).random((4, 12, 12, 3))
    embeddings = encoder.predict(images, verbose=0)
    export_onnx(encoder, tmp_path / "e", quantization="int8")
    found = PortableEncoder(tmp_path / "e").embed(images)
    np.testing.assert_allclose(found, embeddings, atol=LARGEST["int8"])


TOLD = {"scores": {"map_at_r": 0.5}, "recipe": {"dataset": "glyphs"}}


@pytest.mark.parametrize("quantization", [None, "float16", "int8"])
@pytest.mark.parametrize("export", [export_onnx, export_litert])
def test_files_agree_with_keras_and_damage_is_named(
    export, quantization, tmp_path
):
    if export is export_onnx:
        pytest.importorskip("tf2onnx")
        pytest.importorskip("onnxruntime")
    options = {"quantization": quantization, "metadata": TOLD}
    images, embeddings = exported(export, tmp_path, **options)
    check_folder(tmp_path, images, embeddings, LARGEST[quantization])
    facts = PortableEncoder(tmp_path / "e").facts
    assert facts["format"] == export.__name__.removeprefix("export_")
    assert facts["gallery_size"] == 5
    assert facts["largest_difference"] <= LARGEST[quantization]
    with pytest.raises(FileExistsError, match="overwrite"):
        export(small_encoder(), tmp_path / "e")
    (path,) = (tmp_path / "e").glob("encoder.*")
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(bytes(contents))
    with pytest.raises(ValueError, match=f"{path.name}: changed"):
        PortableEncoder(tmp_path / "e")
    with pytest.raises(FileNotFoundError, match="encoder.onnx"):
        PortableEncoder(tmp_path)


def test_onnx_without_a_converter_names_the_extra(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"needs tf2onnx.*\[onnx\]"):
        export_onnx(small_encoder(), tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_are_named(tmp_path):
    for options, error, message in [
        ({"quantization": "int4"}, ValueError, "quantization='int4'"),
        ({"sample_images": np.zeros((2, 9, 9, 3))}, ValueError, "2, 9, 9, 3"),
        ({"index": gsp.retrieval.ExactIndex()}, RuntimeError, "empty"),
        ({"crop_fraction": 2.0}, ValueError, "crop_fraction=2.0"),
    ]:
        with pytest.raises(error, match=message):
            export_litert(small_encoder(), tmp_path / "e", **options)
    assert list(tmp_path.iterdir()) == []
