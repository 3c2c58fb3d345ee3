"""Exports answer in a process without keras_gsp as the encoder does here."""

import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import (
    ExactIndex,
    explain,
    export_encoder,
    export_retriever,
)

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="SavedModels"
)
LABELS = np.array(["cat", "dog", "cow", "hen", "pig"]).repeat(2)
IDS = np.array([f"photo {i}" for i in range(10)])


def broken_files(folder, good):
    """Empty, random, truncated and damaged bytes."""
    contents = {path[-3:]: open(path, "rb").read() for path in good[:2]}
    flipped = bytearray(contents["png"])
    flipped[len(flipped) // 2] ^= 0xFF
    bad = [
        b"",
        np.random.default_rng(0).bytes(300),
        contents["jpg"][: len(contents["jpg"]) // 2],
        contents["png"][: len(contents["png"]) // 2],
        contents["jpg"][:10],
        bytes(flipped),
    ]
    names = []
    for i, content in enumerate(bad):
        path = folder / f"bad{i}"
        path.write_bytes(content)
        names.append(str(path))
    return np.array(names)


def test_encoder_answers_bytes_and_pixels_without_the_package(
    encoder, files, pixels, tmp_path, ask
):
    path = tmp_path / "encoder"
    export_encoder(encoder, path)
    expected = encoder.predict(pixels, verbose=0)
    bytes_in = ["image_bytes"]
    answers = ask(
        path,
        [
            ("serving_default", bytes_in, files),
            ("embed", bytes_in, files.reshape(2, 5)),
            ("embed", bytes_in, files[3]),
            ("embed_uint8", ["images"], pixels),
            ("embed_float32", ["images"], pixels.astype("float32")),
            ("embed_float32", ["images"], pixels[4].astype("float32")),
        ],
    )
    batch, grid, single, whole, real, one = [a["embedding"] for a in answers]
    for found in (batch, whole, real):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(grid, expected.reshape(2, 5, 6), atol=1e-6)
    np.testing.assert_allclose(single, expected[3], atol=1e-6)
    np.testing.assert_allclose(one, expected[4], atol=1e-6)
    assert answers[0]["status"].tolist() == ["ok"] * 10
    assert answers[2]["status"] == "ok"


def test_retriever_answers_without_the_package(
    encoder, files, pixels, tmp_path, ask
):
    path = tmp_path / "retriever"
    index = ExactIndex.from_encoder(encoder, (pixels, LABELS), ids=IDS)
    export_retriever(encoder, index, path, neighbors=4)
    embeddings = encoder.predict(pixels, verbose=0)
    expected = index.search(embeddings, 4)
    shares = explain(encoder, pixels[:3], pixels[3:6])
    found, single, embedded, explained = ask(
        path,
        [
            ("search_exact", ["image_bytes"], files),
            ("serving_default", ["image_bytes"], files[7]),
            ("embed", ["image_bytes"], files),
            (
                "explain",
                ["query_bytes", "neighbor_bytes"],
                np.stack([files[:3], files[3:6]]),
            ),
        ],
    )
    np.testing.assert_array_equal(found["ids"], expected.ids)
    np.testing.assert_array_equal(found["labels"], expected.labels)
    np.testing.assert_allclose(
        found["distances"], expected.distances, atol=1e-6
    )
    assert found["ids"][:, 0].tolist() == IDS.tolist()
    assert found["counts"].tolist() == [4] * 10
    np.testing.assert_array_equal(single["ids"], expected.ids[7])
    np.testing.assert_allclose(embedded["embedding"], embeddings, atol=1e-6)
    for name in (
        "similarity",
        "contributions",
        "pair_contributions",
        "query_weights",
        "neighbor_maps",
    ):
        np.testing.assert_allclose(
            explained[name], getattr(shares, name), atol=1e-6
        )
    np.testing.assert_allclose(
        explained["contributions"].sum(axis=1),
        explained["similarity"],
        atol=1e-6,
    )


def test_unreadable_images_have_a_status_and_the_others_their_answer(
    encoder, files, pixels, tmp_path, ask
):
    path = tmp_path / "retriever"
    index = ExactIndex.from_encoder(encoder, (pixels, LABELS), ids=IDS)
    export_retriever(encoder, index, path, neighbors=2)
    bad = broken_files(tmp_path, files)
    mixed = np.concatenate([bad[:3], files[:2], bad[3:], files[2:3]])
    is_good = np.isin(mixed, files)
    found, embedded, explained, none = ask(
        path,
        [
            ("search_exact", ["image_bytes"], mixed),
            ("embed", ["image_bytes"], mixed),
            (
                "explain",
                ["query_bytes", "neighbor_bytes"],
                np.stack([mixed, files[: len(mixed)]]),
            ),
            ("embed", ["image_bytes"], bad[0]),
        ],
    )
    for answer in (found, embedded):
        assert ((answer["status"] == "ok") == is_good).all()
        assert all("unreadable" in text for text in answer["status"][~is_good])
    assert ((explained["query_status"] == "ok") == is_good).all()
    assert found["ids"][is_good, 0].tolist() == IDS[:3].tolist()
    assert (found["counts"] == np.where(is_good, 2, 0)).all()
    assert (found["ids"][~is_good] == "").all()
    assert np.isinf(found["distances"][~is_good]).all()
    assert (embedded["embedding"][~is_good] == 0.0).all()
    assert (explained["similarity"][~is_good] == 0.0).all()
    expected = encoder.predict(pixels[:3], verbose=0)
    np.testing.assert_allclose(
        embedded["embedding"][is_good], expected, atol=1e-6
    )
    assert "unreadable" in str(none["status"])


def test_crop_fraction_prepares_images_as_they_were_scored(
    encoder, files, tmp_path, ask
):
    export_encoder(encoder, tmp_path / "encoder", crop_fraction=24 / 27)
    batches = gsp.data.evaluation_batches(list(files), size=24, resize=27)
    pixels = np.concatenate(list(batches.as_numpy_iterator()))
    (answer,) = ask(tmp_path / "encoder", [("embed", ["image_bytes"], files)])
    np.testing.assert_allclose(
        answer["embedding"], encoder.predict(pixels, verbose=0), atol=1e-6
    )


def test_an_encoder_of_two_outputs_and_open_size_is_served(
    files, pixels, tmp_path, ask
):
    backbone = keras.Sequential(
        [keras.Input((None, None, 3)), keras.layers.Conv2D(8, 5, strides=4)]
    )
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=6,
        pooling=gsp.layers.GeneralizedSumPooling(4, return_histogram=True),
    )
    export_encoder(encoder, tmp_path / "encoder", image_size=24)
    (answer,) = ask(tmp_path / "encoder", [("embed", ["image_bytes"], files)])
    expected = encoder.predict(pixels, verbose=0)["embedding"]
    np.testing.assert_allclose(answer["embedding"], expected, atol=1e-6)
    assert set(answer) == {"embedding", "status"}


def test_a_plain_keras_export_with_our_layers_loads_without_the_package(
    encoder, pixels, tmp_path, ask
):
    encoder.export(str(tmp_path / "plain"), verbose=False)
    name = encoder.inputs[0].name
    (answer,) = ask(
        tmp_path / "plain",
        [("serving_default", [name], pixels.astype("float32"))],
    )
    expected = encoder.predict(pixels, verbose=0)
    (found,) = answer.values()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_metadata_says_what_was_exported(encoder, pixels, tmp_path):
    index = ExactIndex.from_encoder(encoder, (pixels, LABELS))
    export_retriever(
        encoder,
        index,
        tmp_path / "retriever",
        neighbors=99,
        metadata={"recipe": {"seed": 3}, "scores": {"map_at_r": 0.5}},
    )
    facts = json.loads((tmp_path / "retriever" / "metadata.json").read_text())
    assert facts["recipe"] == {"seed": 3}
    assert facts["scores"] == {"map_at_r": 0.5}
    assert facts["gallery_size"] == 10 and facts["neighbors"] == 10
    assert facts["image_shape"] == [24, 24, 3]
    assert facts["embedding_size"] == 6
    assert set(facts["versions"]) == {"keras_gsp", "keras", "tensorflow"}
    assert "explain" in facts["signatures"]


def test_an_encoder_without_prototypes_is_served_without_explain(
    pixels, tmp_path
):
    encoder = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )
    index = ExactIndex.from_encoder(encoder, (pixels, LABELS))
    export_retriever(encoder, index, tmp_path / "retriever")
    facts = json.loads((tmp_path / "retriever" / "metadata.json").read_text())
    assert "explain" not in facts["signatures"]
    assert "GlobalAveragePooling2D" in facts["no_explain"]


def test_an_existing_export_is_replaced_only_on_request(encoder, tmp_path):
    path = tmp_path / "encoder"
    path.mkdir()
    (path / "precious").write_text("data")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export_encoder(encoder, path)
    assert (path / "precious").read_text() == "data"
    export_encoder(encoder, path, overwrite=True)
    assert not (path / "precious").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["encoder"]


def test_a_failed_export_leaves_nothing_behind(encoder, tmp_path):
    with pytest.raises(TypeError):
        export_encoder(encoder, tmp_path / "e", metadata={"bad": object()})
    assert list(tmp_path.iterdir()) == []


def flat_encoder():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])


def open_encoder():
    return keras.Sequential(
        [
            keras.Input((None, None, 3)),
            keras.layers.GlobalAveragePooling2D(),
        ]
    )


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (flat_encoder, {}, r"inputs of shape \[\(None, 5\)\]"),
        (open_encoder, {}, "image_size=.*None"),
        (open_encoder, {"crop_fraction": 0.0}, "crop_fraction=0.0"),
        (open_encoder, {"crop_fraction": 1.5}, "crop_fraction=1.5"),
    ],
)
def test_bad_encoders_are_refused(make, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_encoder(make(), tmp_path / "encoder", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 32}, r"\(32, 32\), the encoder takes \(24, 24\)"),
        ({"neighbors": 0}, "k=0"),
        ({"minimum_recall": 2.0}, "minimum_recall=2.0"),
        ({"below_minimum": "ignore"}, "below_minimum='ignore'"),
    ],
)
def test_bad_retrievers_are_refused(encoder, options, message, tmp_path):
    index = ExactIndex(np.eye(6))
    with pytest.raises(ValueError, match=message):
        export_retriever(encoder, index, tmp_path / "r", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_index_of_other_embeddings_is_refused(encoder, tmp_path):
    with pytest.raises(ValueError, match="6. Received: 5"):
        export_retriever(encoder, ExactIndex(np.eye(5)), tmp_path / "r")
    with pytest.raises(RuntimeError, match="empty"):
        export_retriever(encoder, ExactIndex(), tmp_path / "r")


def test_pixels_of_another_size_are_refused_by_the_signature(encoder, tmp_path):
    tf = pytest.importorskip("tensorflow")
    export_encoder(encoder, tmp_path / "encoder")
    embed = tf.saved_model.load(str(tmp_path / "encoder")).signatures
    # As many numbers as one image of the right size.
    images = tf.zeros((1, 48, 12, 3), tf.uint8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="size"):
        embed["embed_uint8"](images=images)
