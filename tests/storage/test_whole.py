"""Files and folders are written whole or not at all."""

import errno
import os
import stat

import pytest

from keras_gsp.storage import whole
from keras_gsp.storage.whole import whole_file, whole_folder


def test_a_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "new" / "scores.json"
    with whole_file(path) as aside:
        aside.write_text("{}")
        assert not path.exists()
        assert aside.parent == path.parent
    assert path.read_text() == "{}"
    assert os.listdir(path.parent) == ["scores.json"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "scores.json"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="wrong"), whole_file(path) as aside:
        aside.write_text("half")
        raise RuntimeError("wrong")
    with pytest.raises(FileNotFoundError), whole_file(path):
        pass  # nothing was written

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(whole.os, "fsync", full)
    with pytest.raises(OSError, match="No space left .*scores.json"):
        with whole_file(path) as aside:
            aside.write_text("new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["scores.json"]


def test_the_bytes_reach_the_disk_before_the_rename(tmp_path, monkeypatch):
    done, sync, replace = [], os.fsync, os.replace

    def fsync(descriptor):
        done.append("sync")
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.write(descriptor, b"2")  # Windows refuses read-only handles.
        sync(descriptor)

    monkeypatch.setattr(whole.os, "fsync", fsync)
    monkeypatch.setattr(
        whole.os, "replace", lambda *a: (done.append("name"), replace(*a))
    )
    with whole_file(tmp_path / "a") as aside:
        aside.write_bytes(b"1")
    assert done == ["sync", "name", "sync"]
    assert (tmp_path / "a").read_bytes() == b"2"


def test_a_folder_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "deep" / "model"
    with whole_folder(path) as folder:
        (folder / "old").touch()
        assert not path.exists()
    with pytest.raises(FileExistsError, match="must not exist"):
        with whole_folder(path):
            pass
    with pytest.raises(RuntimeError), whole_folder(path, overwrite=True) as new:
        (new / "half").touch()
        raise RuntimeError("killed")
    assert os.listdir(path) == ["old"]
    with whole_folder(path, overwrite=True) as new:
        (new / "new").touch()
    assert os.listdir(path) == ["new"]
    assert os.listdir(path.parent) == ["model"]
