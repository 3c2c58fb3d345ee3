"""Bulk embedding: what is new, once, from every engine, after any failure."""

import json
import sys

import keras
import numpy as np
import pytest

from keras_gsp.storage.one_process import one_process
from tests.training.datasets import layouts
from training import embed
from training.embedding.collection import listed, read_embeddings

pq = pytest.importorskip("pyarrow.parquet")


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
    for i in range(11):
        layouts.picture(folder / "ab"[i % 2] / f"{i}.png", i, size=(12, 9))
    (folder / "b" / "3.png").write_bytes(b"no image")
    return folder


def run(encoder, images, output, *options):
    where = ["--images", str(images), "--output", str(output)]
    embed.main([str(encoder), *where, "--shard-size=4", *options])
    return json.loads((output / "manifest.json").read_text())


def named(ids, rows):
    return zip(ids, rows, strict=True)


def rows_of(output):
    """Id -> embedding, of all that count."""
    parts = list(read_embeddings(output))
    return {k: row for rows, _, ids in parts for k, row in named(ids, rows)}


def csv_of(folder):
    path, lines = folder.parent / "list.csv", ["path,label,id"]
    for image in sorted(folder.rglob("*.png")):
        name = image.relative_to(folder).as_posix()
        lines.append(f"{folder.name}/{name},{image.parent.name},{name}")
    path.write_text("\n".join(lines))
    return path


def test_a_collection_has_a_row_for_each_image(encoder, images, tmp_path):
    manifest = run(encoder, images, tmp_path / "out")
    assert manifest["num_images"] == 11 and manifest["statuses"]["ok"] == 10
    assert [shard["rows"] for shard in manifest["shards"]] == [4, 4, 3]
    parts = list(read_embeddings(tmp_path / "out"))
    assert sum((labels for _, labels, _ in parts), []) == ["a"] * 6 + ["b"] * 4
    found, model = rows_of(tmp_path / "out"), keras.models.load_model(encoder)
    assert "b/3.png" not in found and found["a/0.png"].dtype == "float32"
    # The central square of 9 pixels.
    served = embed.ShardWriter(str(encoder), "").served
    pixels = served.preprocessing.decode((images / "a" / "0.png").read_bytes())
    expected = model.predict_on_batch(pixels[None].astype("float32"))[0]
    np.testing.assert_allclose(found["a/0.png"], expected, atol=1e-6)
    # A list with the same ids has the same rows.
    run(encoder, csv_of(images), tmp_path / "list")
    assert listed(csv_of(images)) == listed(images)
    assert {*rows_of(tmp_path / "list")} == {*found}


def test_only_what_changed_is_embedded_again(
    encoder, images, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "out"
    run(encoder, images, out)
    before, files = rows_of(out), {*out.iterdir()}
    run(encoder, images, out)  # The failed image is tried again.
    assert rows_of(out).keys() == before.keys()
    layouts.picture(images / "b" / "3.png", 50, size=(12, 9))
    layouts.picture(images / "b" / "5.png", 60, size=(13, 9))
    layouts.picture(images / "new.png", 70, size=(12, 9))
    (images / "a" / "0.png").unlink()
    capsys.readouterr()
    manifest = run(encoder, images, out)
    printed = capsys.readouterr().out
    assert "2 added, 1 embedded again, 1 deleted, 8 unchanged" in printed
    after = rows_of(out)
    assert after.keys() == before.keys() - {"a/0.png"} | {"b/3.png", "new.png"}
    assert not np.allclose(after["b/5.png"], before["b/5.png"])
    for name in after.keys() & before.keys() - {"b/5.png"}:
        np.testing.assert_array_equal(after[name], before[name])
    assert manifest["statuses"] == {"ok": 11}
    named = {shard["file"] for shard in manifest["shards"]}
    assert {path.name for path in out.glob("*.parquet")} == named
    assert files - {*out.iterdir()}


def test_a_run_that_was_stopped_goes_on(encoder, images, tmp_path, monkeypatch):
    out, real, calls = tmp_path / "out", pq.write_table, []

    def fills_up(table, where, **options):
        calls.append(where)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(table, where, **options)

    monkeypatch.setattr(pq, "write_table", fills_up)
    with pytest.raises(SystemExit, match="No space left"):
        run(encoder, images, out)
    assert [path.name for path in out.glob("*.parquet")] == [
        "shard-000000.parquet"
    ]
    with pytest.raises(FileNotFoundError, match="same command again"):
        next(read_embeddings(out))
    run(encoder, images, out)
    assert len(calls) == 4 and len(rows_of(out)) == 10
    with one_process(out), pytest.raises(SystemExit, match="Only one process"):
        run(encoder, images, out)


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
    statuses = run(tmp_path / "bad.keras", path, tmp_path / "out")["statuses"]
    assert statuses["unreadable: No such file or directory"] == 1
    assert statuses["failed: the embedding is not finite"] == 9
    assert list(read_embeddings(tmp_path / "out")) == []


@pytest.mark.slow
def test_ray_gives_the_same_rows_also_in_a_running_cluster(
    encoder, images, tmp_path, monkeypatch
):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    run(encoder, images, tmp_path / "local")
    run(encoder, images, tmp_path / "ray", "--engine=ray", "--workers=2")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    run(encoder, images, tmp_path / "joined", "--engine=ray")
    cluster.shutdown()
    expected = rows_of(tmp_path / "local")
    for name in ("ray", "joined"):
        found = rows_of(tmp_path / name)
        assert found.keys() == expected.keys()
        for id_, row in expected.items():
            np.testing.assert_allclose(found[id_], row, atol=1e-6)
