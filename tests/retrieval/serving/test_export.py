"""Exports answer as the encoder does, also in a process without keras_gsp."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import (
    ExactIndex,
    export_encoder,
    export_retriever,
)
from keras_gsp.retrieval.serving.served_encoder import (
    NOT_FINITE,
    UNREADABLE,
    ServedEncoder,
)
from keras_gsp.storage.checksums import verified_facts
from tests.retrieval.serving.served_answers import (
    answers_elsewhere,
    answers_here,
)
from tests.retrieval.serving.served_artefact import (
    pixels_of,
    small_encoder,
    write_broken_files,
    write_files,
)

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="SavedModels"
)
LABELS = np.array(["cat", "dog", "cow", "hen", "pig"]).repeat(2)
IDS = np.array([f"photo {i}" for i in range(10)])


class Served:
    """Three exports and their answers to many questions."""

    def __init__(self, folder, is_elsewhere):
        keras.utils.set_random_seed(0)
        self.files = write_files(folder)
        self.bad = write_broken_files(folder, self.files)
        self.encoder = small_encoder()
        self.pixels = graph_pixels(self.encoder, self.files)
        self.embeddings = self.encoder.predict(self.pixels, verbose=0)
        match = gsp.retrieval.MatchThreshold(0.5, 0.01, 1.0, 1, 1)
        self.index = ExactIndex(self.embeddings, LABELS, IDS, match=match)
        export_retriever(
            self.encoder,
            self.index,
            folder / "retriever",
            neighbors=4,
            metadata={"recipe": {"seed": 3}, "scores": {"map_at_r": 0.5}},
        )
        self.facts = verified_facts(folder / "retriever")
        self.open_encoder = small_encoder(
            None, gsp.data.Preprocessing(24), return_histogram=True
        )
        export_encoder(self.open_encoder, folder / "encoder")
        good, bad = self.files, self.bad
        self.mixed = np.concatenate([bad[:3], good[:2], bad[3:], good[2:3]])
        retriever = folder / "retriever"
        questions = {
            "search": (retriever, "search", good),
            "default": (retriever, "serving_default", good[7:8]),
            "embed": (retriever, "embed", good),
            "mixed search": (retriever, "search", self.mixed),
            "mixed embed": (retriever, "embed", self.mixed),
            "only bad": (retriever, "embed", bad[:1]),
            "encoder": (folder / "encoder", "serving_default", good),
        }
        asked = list(questions.values())
        if is_elsewhere:
            answers = answers_elsewhere(folder, asked)
        else:
            answers = answers_here(asked)
        self.answers = dict(zip(questions, answers, strict=True))


def graph_pixels(encoder, files):
    """Pixels of files, as an export of the encoder decodes them."""
    contents = [Path(file).read_bytes() for file in files]
    served = ServedEncoder(encoder)
    return served.decoded(contents)[0].numpy()


@pytest.fixture(
    scope="module",
    params=["here", pytest.param("elsewhere", marks=pytest.mark.slow)],
)
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return Served(folder, request.param == "elsewhere")


def assert_close(found, expected, atol=1e-6):
    np.testing.assert_allclose(found, expected, atol=atol)


def test_embeddings_and_neighbors_are_those_of_encoder_and_index(served):
    answers, embeddings = served.answers, served.embeddings
    assert_close(answers["embed"]["embedding"], embeddings)
    assert answers["embed"]["status"].tolist() == ["ok"] * 10
    expected = served.index.search(embeddings, 4)
    np.testing.assert_array_equal(answers["default"]["ids"], expected.ids[7:8])
    found = answers["search"]
    np.testing.assert_array_equal(found["ids"], expected.ids)
    np.testing.assert_array_equal(found["labels"], expected.labels)
    np.testing.assert_array_equal(found["is_match"], expected.is_match)
    assert 0 < expected.is_match.mean() < 1
    # A distance near 0 is the root of a rounding error.
    np.testing.assert_allclose(
        found["distances"], expected.distances, atol=2e-6
    )
    assert found["ids"][:, 0].tolist() == IDS.tolist()
    assert found["counts"].tolist() == [4] * 10
    # The decoder of the graph rounds as Pillow does, to one level.
    moved = served.pixels.astype(int) - pixels_of(served.files)
    assert np.abs(moved).max() <= 1
    # Two outputs, an input of open size, and no crop.
    pixels = graph_pixels(served.open_encoder, served.files)
    expected = served.open_encoder.predict(pixels, verbose=0)["embedding"]
    assert_close(answers["encoder"]["embedding"], expected)
    assert set(answers["encoder"]) == {"embedding", "status"}
    facts = served.facts
    assert facts["match_threshold"] == served.index.match.get_config()
    assert facts["recipe"] == {"seed": 3}
    assert facts["scores"] == {"map_at_r": 0.5}
    assert facts["gallery_size"] == 10 and facts["neighbors"] == 4
    assert facts["image_shape"] == [24, 24, 3]
    assert facts["embedding_size"] == 6
    assert set(facts["versions"]) == {"keras_gsp", "keras", "tensorflow"}
    assert facts["signatures"] == ["embed", "search"]


def test_an_unreadable_image_has_a_status_and_stops_no_other(served):
    is_good = np.isin(served.mixed, served.files)
    found = served.answers["mixed search"]
    embedded = served.answers["mixed embed"]
    for answer in (found, embedded):
        assert ((answer["status"] == "ok") == is_good).all()
        assert all("unreadable" in text for text in answer["status"][~is_good])
    assert found["ids"][is_good, 0].tolist() == IDS[:3].tolist()
    assert (found["counts"] == np.where(is_good, 4, 0)).all()
    assert (found["ids"][~is_good] == "").all()
    assert (found["distances"][~is_good] > 3e38).all()
    json.dumps(found["distances"].tolist(), allow_nan=False)
    assert (embedded["embedding"][~is_good] == 0.0).all()
    assert_close(embedded["embedding"][is_good], served.embeddings[:3])
    assert "unreadable" in str(served.answers["only bad"]["status"])


def test_an_embedding_that_is_not_finite_has_no_neighbors(tmp_path):
    """In an export and in a retriever, with one status."""
    tf = pytest.importorskip("tensorflow")
    images = keras.Input((8, 8, 3))
    means = keras.layers.GlobalAveragePooling2D()(images)
    encoder = keras.Model(images, keras.ops.log(means - 50.0))
    colors = np.array([60, 100, 200, 0], "uint8")
    pixels = colors[:, None, None, None] * np.ones((1, 8, 8, 3), "uint8")
    files = [tf.io.encode_png(one).numpy() for one in pixels]
    rows = encoder.predict(pixels[:3], verbose=0)
    index = ExactIndex(rows, list("abc"), list("abc"))
    export_retriever(encoder, index, tmp_path / "r", neighbors=2)
    model = tf.saved_model.load(str(tmp_path / "r"))
    for name in ("search", "embed"):
        answer = model.signatures[name](image_bytes=tf.constant(files))
        status = [one.decode() for one in answer["status"].numpy()]
        assert status == ["ok"] * 3 + [NOT_FINITE]
        values = {**answer}
        if name == "search":
            assert answer["counts"].numpy().tolist() == [2, 2, 2, 0]
            assert answer["ids"].numpy()[3].tolist() == [b"", b""]
            values = {k: answer[k] for k in ("distances", "counts")}
        values.pop("status", None)
        for value in values.values():
            json.dumps(value.numpy().tolist(), allow_nan=False)
    retriever = gsp.retrieval.Retriever(encoder, index)
    with pytest.raises(ValueError, match=f"image 1: {NOT_FINITE}"):
        retriever.search([files[0], files[3]], k=1)
    assert retriever.search(files[:2], k=1).ids.tolist() == [["a"], ["b"]]


def means(**options):
    """Images of 24 x 24 pixels to their mean colors."""
    same = keras.Sequential([keras.Input((24, 24, 3)), keras.layers.Identity()])
    cut = gsp.data.Preprocessing(24, 24, **options)
    return gsp.models.build_encoder(
        same, embedding_size=None, normalization=None, preprocessing=cut
    )


def test_a_large_image_is_refused_before_decoding(tmp_path):
    tf = pytest.importorskip("tensorflow")
    large = tf.io.encode_png(np.zeros((40, 50, 3), "uint8")).numpy()
    small = tf.io.encode_png(np.full((30, 30, 3), 9, "uint8")).numpy()
    index = ExactIndex(np.eye(3), labels=list("abc"))
    export_retriever(means(max_pixels=900), index, tmp_path / "r")
    model = tf.saved_model.load(str(tmp_path / "r"))
    # A header that asks for 20,000 x 20,000 pixels.
    giant = small[:16] + (20_000).to_bytes(4, "big") * 2 + small[24:]
    batch = tf.constant([small, large, b"no image", giant, small])
    answer = model.signatures["search"](image_bytes=batch)
    status = answer["status"].numpy().tolist()
    assert status[0] == status[4] == b"ok"
    assert status[1] == b"too large: 2000 pixels, the limit is 900"
    assert status[2].startswith(b"unreadable")
    assert status[3] == b"too large: 400000000 pixels, the limit is 900"
    assert answer["counts"].numpy().tolist() == [3, 0, 0, 0, 3]
    assert answer["ids"].dtype == "int64"  # as in the index


def test_large_ids_and_the_background_are_those_of_the_index(tmp_path):
    tf = pytest.importorskip("tensorflow")
    encoder = means(background=(0, 90, 200))
    ids = np.array([2**63 - 2, 2**53 + 1])
    index = ExactIndex([[0, 90, 200], [1, 1, 1]], ids[::-1].copy(), ids)
    export_retriever(encoder, index, tmp_path / "r", neighbors=2)
    assert verified_facts(tmp_path / "r")["background"] == [0, 90, 200]
    model = tf.saved_model.load(str(tmp_path / "r"))
    clear = tf.io.encode_png(np.zeros((24, 24, 4), "uint8")).numpy()
    images = tf.constant([clear, b"no image"])
    answer = model.signatures["search"](image_bytes=images)
    # JSON keeps 53 bits of a number, but all digits of a string.
    words = [str(one).encode() for one in ids.tolist()]
    assert answer["ids"].numpy().tolist() == [words, [b"", b""]]
    assert answer["labels"].numpy()[0].tolist() == words[::-1]
    assert_close(answer["distances"][0, 0], 0.0)


@pytest.mark.slow
def test_both_looks_are_on_the_original(tmp_path):
    eager = 1e-5  # sums in another order than in a graph
    # Files of several sizes, turned, too small and unreadable ones.
    looks = gsp.models.TwoLooks(
        small_encoder(preprocessing=gsp.data.Preprocessing(24, 27))
    )
    files = write_files(tmp_path)
    bad = write_broken_files(tmp_path, files)[:2]
    pixels = [gsp.data.decode_image(Path(file).read_bytes()) for file in files]
    assert len({one.shape for one in pixels}) > 3
    expected = np.concatenate([looks(one[None]) for one in pixels])
    index = ExactIndex.from_encoder(looks, (files, np.arange(10)))
    assert_close(index.gallery.embeddings, expected, eager)
    path = tmp_path / "r"
    canaries = dict(zip(index.ids().tolist(), files, strict=True))
    export_retriever(looks, index, path, neighbors=1, canaries=canaries)
    assert gsp.retrieval.verify_export(path)["num_canaries"] == 10
    mixed = np.concatenate([bad, files])
    embedded, none, found = answers_here(
        [
            (path, "embed", mixed),
            (path, "embed", mixed[:0]),
            (path, "search", mixed),
        ]
    )
    assert_close(embedded["embedding"][2:], expected, eager)
    assert none["embedding"].shape == (0, expected.shape[1])
    assert embedded["status"].tolist()[1:] == [UNREADABLE] + ["ok"] * 10
    names = [Path(file).name for file in files]
    assert found["ids"].ravel().tolist() == ["", "", *names]
    # A retriever, and a part of its embedding.
    part = gsp.models.truncate_encoder(looks, 4)
    retriever = gsp.retrieval.Retriever(part, ExactIndex())
    found = retriever.embed(list(files))
    assert_close(found, part_of(expected, 4), eager)


def part_of(rows, size):
    rows = rows[:, :size]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
