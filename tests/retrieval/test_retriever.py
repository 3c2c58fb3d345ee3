"""Retriever: folders, files and pictures in, named photographs out."""

import shutil
import warnings

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.retrieval import ExactIndex, Retriever, verify_export

PLACES = "top.png", "cat/1.png", "cat/2.png", "dog/small/1.png"


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in PLACES:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        colors = rng.integers(0, 256, (4, 5, 3)).astype("uint8")
        Image.fromarray(colors).resize((50, 40)).save(path)
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def encoder():
    return means()


def means(scale=1 / 255):
    """Images to the means of their 16 parts: 48 numbers, no weights."""
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Rescaling(scale),
            keras.layers.AveragePooling2D(4),
            keras.layers.Flatten(),
            keras.layers.Dense(48, kernel_initializer="identity"),
        ]
    )


def test_answers_name_photographs_by_their_path(photos, encoder):
    (photos / "cat" / "3.jpg").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="1 of 5.*cat/3.jpg .unreadable"):
        retriever = Retriever.from_folder(photos, encoder)
    assert retriever.index.ids().tolist() == list(PLACES)
    found = retriever.search(photos / "cat" / "2.png", k=4)
    assert found.ids[0, 0] == "cat/2.png" and found.distances[0, 0] < 1e-5
    labels = dict(zip(found.ids[0], found.labels[0], strict=True))
    assert list(map(labels.get, PLACES)) == ["", "cat", "cat", "dog/small"]
    # As evaluation batches read them.
    batches = gsp.data.image_batches(
        [photos / name for name in PLACES],
        preprocessing=gsp.data.Preprocessing(16, 16),
    )
    expected = encoder.predict(batches, verbose=0)
    np.testing.assert_allclose(
        retriever.index.gallery.embeddings, expected, atol=0.01
    )


def test_files_bytes_pictures_and_pixels_are_one_query(photos, encoder):
    retriever = Retriever.from_folder(photos, encoder)
    file = photos / "dog" / "small" / "1.png"
    picture = Image.open(file)
    alike = [str(file), file, file.read_bytes(), picture, np.asarray(picture)]
    found = retriever.search(alike, k=2)
    assert (found.ids[:, 0] == "dog/small/1.png").all()
    assert (found.distances[:, 0] < 1e-5).all() and len(found) == 5
    turned = picture.rotate(90, expand=True)
    assert retriever.search(turned, k=1).distances[0, 0] > 0.01
    turned.getexif()[0x0112] = 6  # shown turned back by 90 degrees
    assert retriever.search(turned, k=1).distances[0, 0] < 1e-5
    where = {"label": ["cat"]}
    assert set(retriever.search(file, k=2, where=where).labels[0]) == {"cat"}


def test_photographs_of_one_thing_find_what_is_near_any_of_them(
    photos, encoder
):
    retriever = Retriever.from_folder(photos, encoder)
    files = [photos / name for name in PLACES]
    found = retriever.search([files[1:3], files[2:]], k=2)
    assert [{*ids} for ids in found.ids.tolist()] == [
        {*PLACES[1:3]},
        {*PLACES[2:]},
    ]
    assert found.distances.max() < 1e-5
    rows = retriever.embed(files[1:])[[0, 1, 1, 2]].reshape(2, 2, -1)
    expected = retriever.index.search(rows, 2)
    np.testing.assert_array_equal(found.ids, expected.ids)
    for wrong in ([files[:1], files[:2]], [files[0], files[:1]], [[]]):
        with pytest.raises(ValueError, match="as many photographs of each"):
            retriever.search(wrong)


def test_a_box_is_what_is_searched_for(photos, encoder):
    retriever = Retriever.from_folder(photos, encoder)
    inner = np.asarray(Image.open(photos / "cat" / "1.png"))
    canvas = np.zeros((100, 120, 3), "uint8")
    canvas[20:60, 30:80] = inner
    found = retriever.search(canvas, k=1, box=(30, 20, 50, 40))
    assert found.ids.tolist() == [["cat/1.png"]]
    assert found.distances[0, 0] < 1e-5
    Image.fromarray(canvas).save(photos / "canvas.png")
    boxes = [(0, 0, 30, 30), (30, 20, 50, 40)]
    retriever.add([photos / "top.png", photos / "canvas.png"], boxes=boxes)
    found = retriever.search(photos / "cat" / "1.png", k=2)
    assert set(found.ids[0]) == {"cat/1.png", "canvas.png"}
    assert found.distances.max() < 1e-5
    with pytest.raises(ValueError, match=r"\(1, 4\) numbers"):
        retriever.search(canvas, box=boxes)
    shares = (0.1, 0.1, 0.4, 0.4), (0, 0, 1, 1)  # no pixels
    for box in ((80, 20, 50, 40), (-1, 0, 5, 5), (0, 0, 0, 5), (1, 2), *shares):
        with pytest.raises(ValueError, match=r"box.*" + str(box[0])):
            retriever.search(canvas, box=box)


def test_items_that_are_boxes_of_their_files_are_no_canaries(photos, encoder):
    retriever = Retriever.from_folder(photos, encoder)
    part = retriever.embed([photos / "top.png"], box=(0, 0, 9, 9))
    retriever.index.upsert(part, ["."], ["top.png"])
    assert "top.png" not in retriever._canaries()


def test_any_number_of_photographs_has_few_sizes(photos, encoder, monkeypatch):
    retriever, sizes = Retriever(encoder, ExactIndex()), []
    served, image = retriever._served.encoder, photos / "top.png"
    predict = served.predict_on_batch

    def noted(images):
        sizes.append(len(images))
        return predict(images)

    monkeypatch.setattr(served, "predict_on_batch", noted)
    rows = [retriever.embed([image] * count) for count in range(1, 10)]
    assert {*sizes} == {1, 2, 4, 8, 16} and len(rows[-1]) == 9


def test_photographs_come_and_go(photos, encoder):
    retriever = Retriever.from_folder(photos, encoder)
    assert retriever.delete(["top.png", "cat/1.png", "unknown"]) == 2
    retriever.add(photos / "top.png", labels=["owl"])
    found = retriever.search(photos / "top.png", k=1)
    assert found.ids[0, 0] == "top.png" and found.labels[0, 0] == "owl"
    retriever.add([photos / "top.png"])  # replaced, not doubled
    assert len(retriever) == 3
    bare = Retriever(encoder, ExactIndex())
    bare.add([photos / "top.png"])
    assert bare.index.ids().tolist() == [(photos / "top.png").as_posix()]


def test_ids_are_photographs_too(photos, encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    retriever = Retriever.from_folder(photos, encoder)
    found = retriever.search("cat/2.png", k=1)
    assert found.ids[0, 0] == "cat/2.png"
    retriever.add(["cat/2.png", "dog/small/1.png"])
    assert sorted(retriever.index.ids()) == sorted(PLACES)
    assert retriever.path("cat/2.png") == photos / "cat" / "2.png"
    # A file from elsewhere has an id, a picture and no class.
    elsewhere = tmp_path / "new.png"
    shutil.copy(photos / "top.png", elsewhere)
    retriever.add("new.png")
    assert retriever.path(str(elsewhere)) == elsewhere
    monkeypatch.chdir("/")
    found = retriever.search(str(elsewhere), k=2)
    assert {*found.ids[0]} == {"top.png", elsewhere.as_posix()}
    assert {*found.labels[0]} == {""}
    (photos / "cat" / "1.png").unlink()  # its embedding is known
    assert retriever.search("cat/1.png", k=1).distances[0, 0] == 0
    liked = retriever.search(like=["cat/2.png"], k=4)
    other = retriever.search(like=[photos / "cat" / "2.png"], k=5)
    assert liked.ids[0].tolist() == other.ids[0, 1:].tolist()
    far = retriever.search("top.png", 1, unlike=[photos / "top.png"])
    assert len(far) == 1


def test_a_network_that_nobody_scales_for_is_warned_of():
    network = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(4, 3),
            keras.layers.ReLU(name="out_relu"),  # as in MobileNetV2
        ]
    )
    with pytest.warns(UserWarning, match="MobileNetV2"):
        Retriever(gsp.models.build_encoder(network), ExactIndex())
    scaled = [keras.layers.Rescaling(1 / 127.5), network]
    model = keras.Sequential([*scaled, keras.layers.Flatten()])
    model.build((None, 32, 32, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Retriever(model, ExactIndex())


def test_an_archive_and_other_ways_to_a_folder_name_the_same_items(
    photos, encoder, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", photos)
    packed = Retriever.from_folder(archive, encoder)
    assert packed.index.ids().tolist() == list(PLACES)
    monkeypatch.chdir(tmp_path)
    retriever = Retriever.from_folder("photos", encoder)
    (tmp_path / "link").symlink_to(photos)
    for file in (photos / "top.png", "photos/top.png", "link/cat/1.png"):
        retriever.add(file)
    assert sorted(retriever.index.ids()) == sorted(PLACES)
    monkeypatch.chdir("/")
    retriever.save(tmp_path / "saved")
    assert verify_export(tmp_path / "saved")["num_canaries"] == 4
    elsewhere = Retriever.load(tmp_path / "saved")
    with pytest.warns(UserWarning, match="no canaries"):
        elsewhere.save(tmp_path / "again")


def test_an_encoder_that_was_trained_since_is_not_saved(photos, tmp_path):
    encoder = means()
    retriever = Retriever.from_folder(photos, encoder)
    retriever.save(tmp_path / "saved")
    encoder.set_weights([2 * one for one in encoder.get_weights()])
    with pytest.raises(ValueError, match="another encoder"):
        retriever.save(tmp_path / "saved", overwrite=True)
    assert len(Retriever.load(tmp_path / "saved")) == 4


def test_wrong_calls_are_refused_by_name(photos, encoder, tmp_path):
    retriever = Retriever.from_folder(photos, encoder)
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    absent = tmp_path / "x"
    for call, arguments, error, words in [
        (retriever.search, [bad], ValueError, "bad.jpg: unreadable"),
        (retriever.search, [b"no"], ValueError, "image 0: unreadable"),
        (retriever.search, ["absent.jpg"], FileNotFoundError, "absent"),
        (retriever.search, [photos], IsADirectoryError, "a folder"),
        (retriever.search, [np.zeros((5, 5, 3))], TypeError, "float64"),
        (retriever.add, [[bad]], ValueError, "bad.jpg .unreadable"),
        (retriever.add, [[]], ValueError, "no file"),
        (retriever.add, [[bad], ["a", "b"]], ValueError, "`labels` must"),
        (retriever.add, [[bad, absent], [1, "a"]], TypeError, "`labels`"),
        (retriever.search, [Image.new("I;16", (9, 9))], TypeError, "8 bits"),
        (retriever.embed, [str(absent)], FileNotFoundError, "x"),
        (
            Retriever.from_folder,
            [absent, encoder],
            FileNotFoundError,
            "must be a folder",
        ),
        (Retriever, [means(0.5), retriever.index], ValueError, "another enc"),
        (Retriever.load, [tmp_path], FileNotFoundError, "hold metadata.json"),
    ]:
        with pytest.raises(error, match=words):
            call(*arguments)
    images = np.random.default_rng(0).integers(0, 255, (96, 16, 16, 3))
    sample = images, np.arange(96) // 4
    new = means(0.01)
    upgraded = gsp.retrieval.upgrade(retriever.index, encoder, new, sample)
    with pytest.raises(TypeError, match="in memory.*Received: Upgrade"):
        Retriever(new, upgraded).export(tmp_path / "e")
