"""Bulk embedding: the same bytes from every engine, after any failure."""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.training.datasets import layouts
from training import embed
from training.embedding.collection import read_embeddings
from training.embedding.sources import content, listed

pq = pytest.importorskip("pyarrow.parquet")
tf = pytest.importorskip("tensorflow")
NUM_IMAGES = 11


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(4, 3)]
    layers.append(keras.layers.GlobalAveragePooling2D())
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    path = tmp_path_factory.mktemp("encoder") / "encoder.keras"
    model.save(path)
    return path


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    for i in range(NUM_IMAGES):
        layouts.picture(folder / "ab"[i % 2] / f"{i}.png", i, size=(12, 9))
    (folder / "b" / "3.png").write_bytes(b"no image")
    return folder


def run(encoder, images, output, *options):
    where = ["--images", str(images), "--output", str(output)]
    small = ["--shard-size=4", "--batch-size=3"]
    embed.main([str(encoder), *where, *small, *options])
    return json.loads((output / "manifest.json").read_text())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def csv_of(folder):
    path, lines = folder.parent / "list.csv", ["path,label,id"]
    for image in sorted(folder.rglob("*.png")):
        name = image.relative_to(folder).as_posix()
        lines.append(f"{folder.name}/{name},{image.parent.name},{name}")
    path.write_text("\n".join(lines))
    return path


def test_a_collection_has_a_row_for_each_image(
    encoder, images, tmp_path, capsys
):
    (images / "a" / "photo.heic").write_bytes(b"another format")
    manifest = run(encoder, images, tmp_path / "out")
    unreadable = "unreadable: not a whole JPEG, PNG, BMP or WebP image"
    assert manifest["statuses"] == {"ok": 10, unreadable: 1}
    printed = capsys.readouterr().out
    assert "note: 1 of 12 files" in printed and "a/photo.heic" in printed
    assert [shard["rows"] for shard in manifest["shards"]] == [4, 4, 3]
    files = sorted((tmp_path / "out").glob("*.parquet"))
    rows = sum((pq.read_table(file).to_pylist() for file in files), [])
    assert len({row["id"] for row in rows}) == NUM_IMAGES
    (bad,) = (row for row in rows if row["status"] != "ok")
    assert (bad["id"], bad["embedding"], bad["label"]) == ("b/3.png", None, "b")
    good = list(read_embeddings(tmp_path / "out"))
    embeddings = np.concatenate([rows for rows, _, _ in good])
    assert embeddings.shape == (10, 4) and embeddings.dtype == "float32"
    assert sum((labels for _, labels, _ in good), []) == ["a"] * 6 + ["b"] * 4
    image = tf.io.decode_image((images / "a" / "0.png").read_bytes())[1:10]
    # 12 x 9 pixels: rounding puts the square at row 1.
    image = tf.saturate_cast(tf.round(tf.image.resize(image, (8, 8))), "uint8")
    expected = keras.models.load_model(encoder)(tf.cast(image[None], "float32"))
    np.testing.assert_allclose(embeddings[:1], expected, atol=1e-6)


def test_a_list_has_the_ids_of_the_folder_and_no_absolute_path(
    images, tmp_path
):
    files = sorted(images.rglob("*.png"))
    assert listed(csv_of(images)) == listed(images)
    (tmp_path / "lists").mkdir()
    for place, where in (("lists/list", images), ("list", tmp_path)):
        path = tmp_path / f"{place}.csv"
        path.write_text("\n".join(["path", *map(str, files)]))
        rows = listed(path)
        assert [content(row) for row in rows] == [
            (file.read_bytes(), None) for file in files
        ]
        ids = [row["id"] for row in rows]
        assert ids == [file.relative_to(where).as_posix() for file in files]


@pytest.mark.slow
def test_the_same_command_continues_after_a_full_disk_or_a_kill(
    encoder, images, tmp_path, monkeypatch
):
    run(encoder, images, tmp_path / "whole")
    real, calls = pq.write_table, []

    def fills_up(table, where, **options):
        calls.append(where)
        if len(calls) == 2:
            Path(where).write_bytes(b"half of it")
            raise OSError(28, "No space left on device")
        return real(table, where, **options)

    monkeypatch.setattr(pq, "write_table", fills_up)
    with pytest.raises(SystemExit, match="No space left"):
        run(encoder, images, tmp_path / "out")
    assert sorted(contents(tmp_path / "out")) == [
        "plan.json",
        "shard-000000.parquet",
    ]
    with pytest.raises(FileNotFoundError, match="same command again"):
        next(read_embeddings(tmp_path / "out"))
    # As a killed writer leaves it.
    left = tmp_path / "out" / ".shard-000001.parquet.123.partial"
    left.write_bytes(b"half of it")
    run(encoder, images, tmp_path / "out")
    assert len(calls) == 2 + 2
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    run(encoder, images, tmp_path / "out")
    assert len(calls) == 4
    with pytest.raises(SystemExit, match="another batch_size"):
        run(encoder, images, tmp_path / "out", "--batch-size=5")


def test_bad_sources_outputs_and_engines_are_refused(
    encoder, images, tmp_path, monkeypatch
):
    out, header, twice = (tmp_path / name for name in ("out", "h.csv", "t.csv"))
    header.write_text("file\na.png\n")
    twice.write_text("path\na.png\na.png\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    for source, target, options, message in (
        (tmp_path / "nothing", out, [], "must be a folder of images"),
        (encoder.parent, out, [], "must hold images"),
        (header, out, [], "column path"),
        (twice, out, [], "'a.png' twice"),
        (images, images, [], "holds other files"),
        (images, out, ["--engine=ray"], r"keras-gsp\[ray\]"),
    ):
        with pytest.raises(SystemExit, match=message):
            run(encoder, source, target, *options)


def test_missing_files_and_embeddings_that_are_not_finite_have_a_status(
    images, tmp_path
):
    model = keras.Sequential([keras.Input((2, 2, 3)), keras.layers.Flatten()])
    model.add(keras.layers.Rescaling(np.inf))
    model.save(tmp_path / "bad.keras")
    path = csv_of(images)
    (images / "a" / "2.png").unlink()
    manifest = run(tmp_path / "bad.keras", path, tmp_path / "out")
    statuses = manifest["statuses"]
    assert statuses["unreadable: No such file or directory"] == 1
    assert statuses["failed: the embedding is not finite"] == 9
    assert list(read_embeddings(tmp_path / "out")) == []


@pytest.mark.slow
def test_ray_writes_the_same_bytes(encoder, images, tmp_path):
    pytest.importorskip("ray")
    run(encoder, images, tmp_path / "local")
    run(encoder, images, tmp_path / "ray", "--engine=ray", "--workers=2")
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
