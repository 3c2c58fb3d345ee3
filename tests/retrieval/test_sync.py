"""What changed in a folder is embedded, nothing else, and it is said."""

import os
import unicodedata

import pytest

from keras_gsp.retrieval.folder_changes import (
    FolderChanges,
    folder_changes,
    image_versions,
)


def test_changes_are_what_came_changed_and_went():
    known = {"a": 1, "b": 2, "c": 3, "d": 4}
    changes = folder_changes(known, {"b": 2, "c": 9, "d": 4, "e": 5, "aa": 6})
    assert changes == FolderChanges(("aa", "e"), ("c",), ("a",), 2)
    assert str(changes) == "2 added, 1 embedded again, 1 deleted, 2 unchanged"


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
