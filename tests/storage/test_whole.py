"""Files and folders are written whole or not at all."""

import contextlib
import errno
import multiprocessing
import os
import shutil
import signal
import stat
import time

import pytest

from keras_gsp.storage import whole
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import (
    current_folder,
    reading,
    whole_file,
    whole_folder,
    whole_version,
)

WRITERS = [whole_version, whole_folder]


def write(path, text, *, writer=whole_version, overwrite=True):
    """Writes a folder of two files that hold the same text."""
    with writer(path, overwrite=overwrite) as folder:
        for name in "ab":
            (folder / name).write_text(text)
        write_checksums(folder)


def read(path):
    with reading(path) as folder:
        first, second = ((folder / name).read_text() for name in "ab")
    assert first == second
    return first


def num_files(path):
    return sum(len(files) for _, _, files in os.walk(path))


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


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_is_replaced_only_when_asked(writer, tmp_path):
    path = tmp_path / "deep" / "model"
    write(path, "old", writer=writer, overwrite=False)
    with pytest.raises(FileExistsError, match="must not exist"):
        write(path, "new", writer=writer, overwrite=False)
    with pytest.raises(RuntimeError), writer(path, overwrite=True) as folder:
        (folder / "a").write_text("half")
        assert read(path) == "old"
        raise RuntimeError("wrong")
    assert read(path) == "old"
    expected = num_files(tmp_path)
    for number in range(4):
        write(path, f"new {number}", writer=writer)
        assert read(path) == f"new {number}"
    assert num_files(tmp_path) == expected
    assert os.listdir(path.parent) == ["model"]
    with pytest.raises(RuntimeError), writer(tmp_path / "x") as folder:
        raise RuntimeError("wrong")
    assert not (tmp_path / "x").exists()


def photographs(path):
    path.mkdir()
    return path / "photo.png"


def inside(path, writer):
    write(path, "own", writer=writer)
    return current_folder(path) / "photo.png"


def beside(path, writer):
    write(path, "own", writer=writer)
    return path / "photo.png"


def of_checksums(path, writer):
    path.mkdir()
    write_checksums(path)
    (path / "checksums.json").rename(path / "kept.json")
    return path / "kept.json"


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "foreign",
    [
        lambda path, writer: photographs(path),
        lambda path, writer: photographs(path).parent / "deep" / "photo.png",
        lambda path, writer: photographs(path).parent / "version-20260101/x",
        lambda path, writer: path,
        inside,
        beside,
        of_checksums,
    ],
)
def test_overwriting_spares_other_files(writer, foreign, tmp_path):
    file = foreign(tmp_path / "p", writer)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    before = num_files(tmp_path)
    with pytest.raises(FileExistsError, match="another file"):
        write(tmp_path / "p", "new", writer=writer)
    assert file.read_text() == "mine" and num_files(tmp_path) == before


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_rename_that_fails_leaves_the_old_or_the_new(
    writer, can_exchange, tmp_path, monkeypatch
):
    if not can_exchange:
        monkeypatch.setattr(whole, "_exchange", lambda *names: False)
    originals = {n: getattr(os, n) for n in ("rename", "replace", "fsync")}
    for failing in range(1, 12):
        calls, path = [], tmp_path / str(failing)
        write(path, "old", writer=writer)

        def flaky(name, calls=calls, failing=failing):
            def call(*arguments):
                calls.append(name)
                if len(calls) == failing:
                    raise OSError(errno.EIO, "Input/output error")
                return originals[name](*arguments)

            return call

        with monkeypatch.context() as patched:
            for name in originals:
                patched.setattr(os, name, flaky(name))
            with contextlib.suppress(OSError):
                write(path, "new", writer=writer)
        expected = {"new"} if len(calls) < failing else {"old", "new"}
        assert read(path) in expected
        write(path, "newer", writer=writer)
        assert read(path) == "newer"
    assert len(calls) < failing


def write_on(path, writer):
    for number in range(10**6):
        write(path, f"text {number}" * 1000, writer=writer)


def started(path, writer):
    write(path, "start", writer=writer)
    # A fork: the parent's modules are there, and it holds no lock.
    process = multiprocessing.get_context("fork").Process(
        target=write_on, args=(path, writer), daemon=True
    )
    process.start()
    return process


@pytest.mark.parametrize("writer", WRITERS)
def test_a_killed_writer_leaves_the_old_or_the_new(writer, tmp_path):
    path = tmp_path / "model"
    for number in range(15):
        process = started(path, writer)
        time.sleep(0.005 + 0.003 * number)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert read(path).startswith(("text", "start"))
    if writer is whole_version:  # Killed after it removed a version.
        (path / ".version-00000000.partial").touch()
    write(path, "last", writer=writer)
    assert read(path) == "last"
    left = num_files(tmp_path)
    write(tmp_path / "fresh" / "model", "last", writer=writer)
    assert num_files(tmp_path / "fresh") == left


@pytest.mark.parametrize("writer", WRITERS)
def test_readers_beside_two_writers_read_one_version(writer, tmp_path):
    path = tmp_path / "model"
    processes = [started(path, writer) for _ in range(2)]
    seen = set()
    end = time.monotonic() + 1.5
    try:
        while time.monotonic() < end:
            with reading(path) as folder:
                first = (folder / "a").read_text()
                time.sleep(0.002)
                assert (folder / "b").read_text() == first
                seen.add(first)
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert len(seen) > 5
    write(path, "last", writer=writer)
    assert read(path) == "last"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_version_stays_while_it_is_read(writer, tmp_path):
    path = tmp_path / "model"
    write(path, "old", writer=writer)
    with reading(path) as folder:
        for number in range(3):
            write(path, f"new {number}", writer=writer)
        assert (folder / "a").read_text() == "old"
        assert read(path) == "new 2"
    held = num_files(tmp_path)
    write(path, "last", writer=writer)
    assert num_files(tmp_path) < held


@pytest.mark.parametrize("writer", WRITERS)
def test_without_locks_the_version_before_stays(writer, tmp_path, monkeypatch):
    monkeypatch.setattr(whole, "fcntl", None)
    path, sizes = tmp_path / "model", []
    for number in range(5):
        write(path, f"new {number}", writer=writer)
        with reading(path) as folder:
            assert (folder / "a").read_text() == f"new {number}"
            if writer is whole_version:
                write(path, f"new {number}", writer=writer)
                assert (folder / "a").exists()
        sizes.append(num_files(tmp_path))
    assert sizes[-1] == sizes[1] == sizes[2]


def test_links_are_followed_and_mounts_are_named(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    for writer in WRITERS:
        link = tmp_path / f"link {writer.__name__}"
        link.symlink_to(tmp_path / "disk" / writer.__name__)
        for text in ("old", "new"):
            write(link, text, writer=writer)
        assert link.is_symlink() and read(link) == "new"
    (tmp_path / "file").write_text("")
    (tmp_path / "name").symlink_to(tmp_path / "file")
    with whole_file(tmp_path / "name") as aside:
        aside.write_text("new")
    assert (tmp_path / "name").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    mount = tmp_path / "mount"
    mount.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == mount)
    write(mount, "new")
    assert read(mount) == "new"
    shutil.rmtree(mount)
    mount.mkdir()
    with pytest.raises(OSError, match="must not be a mount point.*/mount"):
        write(mount, "new", writer=whole_folder)


def test_a_damaged_name_of_the_version_is_named(tmp_path):
    write(tmp_path / "p", "old")
    for text in ("", "{}", '{"version": "../x"}', '{"version": 3}'):
        (tmp_path / "p" / "current.json").write_text(text)
        with pytest.raises(ValueError, match=r"current\.json.* must name"):
            current_folder(tmp_path / "p")
