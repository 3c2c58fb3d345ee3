"""What changed in a folder is embedded, nothing else, and it is said."""

import os
import shutil
import unicodedata

import numpy as np
import pytest
from PIL import Image

from keras_gsp.retrieval import ExactIndex, Retriever
from keras_gsp.retrieval.folder_changes import (
    FolderChanges,
    image_versions,
)
from tests.retrieval.test_retriever import (  # noqa: F401
    PLACES,
    encoder,
    means,
    photos,
)


def test_images_are_listed_once_through_links_and_by_composed_names(tmp_path):
    name = unicodedata.normalize("NFD", "caf\u00e9")
    for path in ("root/b.JPG", f"root/{name}/a.png", "store/c.webp"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"1234")
    root = tmp_path / "root"
    for hidden in (".x.png", "notes.txt"):
        (root / hidden).touch()
    (root / "linked").symlink_to(tmp_path / "store")
    (root / "linked" / "loop").symlink_to(root)
    (root / "broken.png").symlink_to(tmp_path / "absent.png")
    versions = image_versions(root)
    composed = unicodedata.normalize("NFC", f"{name}/a.png")
    assert sorted(versions) == ["b.JPG", composed, "linked/c.webp"]
    for file, (size, modified) in versions.values():
        assert size == 4 and modified == os.stat(file).st_mtime_ns
    with pytest.raises(FileNotFoundError, match="absent"):
        image_versions(tmp_path / "absent")


def embedded_anew(folder):
    index = Retriever.from_folder(folder, means()).index
    ids = sorted(index.ids().tolist())
    return ids, *index.items(ids)[:2]


def test_a_folder_and_its_index_are_in_step(photos, encoder, tmp_path):  # noqa: F811
    retriever = Retriever.from_folder(photos, encoder)
    assert retriever.sync() == FolderChanges(unchanged=4)
    (photos / "top.png").unlink()
    (photos / "cat" / "2.png").write_bytes(b"no image")
    colors = np.random.default_rng(1).integers(0, 255, (9, 9, 3), "uint8")
    for name in ("cat/1.png", "owl/1.png"):
        (photos / name).parent.mkdir(exist_ok=True)
        Image.fromarray(colors).save(photos / name)
    changes = retriever.sync()
    assert changes.added == ("owl/1.png",) and changes.unchanged == 1
    assert changes.changed == ("cat/1.png",)
    assert changes.deleted == ("top.png",)
    assert list(changes.failed) == ["cat/2.png"]
    assert "unreadable" in changes.failed["cat/2.png"]
    assert str(changes) == (
        "1 added, 1 embedded again, 1 deleted, 1 failed, 1 unchanged"
    )
    # As after an interruption: saved before, and a repaired file.
    retriever.save(tmp_path / "saved")
    Image.fromarray(255 - colors).save(photos / "cat" / "2.png")
    again = Retriever.load(tmp_path / "saved", folder=photos)
    assert again.sync().added == ("cat/2.png",)
    ids, rows, labels = embedded_anew(photos)
    found = again.index.items(ids)
    np.testing.assert_allclose(found[0], rows, atol=1e-6)
    assert found[1].tolist() == labels.tolist() and len(again) == len(ids)
    shutil.rmtree(photos)
    photos.mkdir()
    with pytest.raises(FileNotFoundError, match="is it mounted"):
        again.sync()
    assert len(again) == len(ids)


def test_what_sync_cannot_know_stays(photos, encoder, tmp_path):  # noqa: F811
    retriever = Retriever(encoder, ExactIndex(), folder=photos)
    file, year = photos / "cat" / "1.png", {"year": [7]}
    retriever.add([file], ["lion"], year)
    retriever.add([photos / "top.png"], attributes=year, boxes=(0, 0, 9, 9))
    part = retriever.index.items(["top.png"])[0]
    shutil.copy(photos / "cat" / "2.png", file)
    for name in PLACES[2:]:
        (photos / name).unlink()
    (photos / "top.png").unlink()
    assert retriever.sync().changed == ("cat/1.png",)
    rows, labels, _, attributes = retriever.index.items(["cat/1.png"])
    assert labels.tolist() == ["lion"] and attributes["year"].tolist() == [7]
    assert retriever.search(file, 1).distances[0, 0] < 1e-6
    assert (retriever.index.items(["top.png"])[0] == part).all()
    shutil.copy(file, photos / "new.png")
    with pytest.raises(ValueError, match="year.*'new.png'"):
        retriever.sync()
    with pytest.raises(FileNotFoundError, match="Received: None"):
        Retriever(encoder, ExactIndex()).sync()
    for form in "NFC", "NFD":
        shutil.copy(file, photos / unicodedata.normalize(form, "é.png"))
    with pytest.raises(ValueError, match="composed form"):
        retriever.sync()
