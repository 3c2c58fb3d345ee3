"""Damage to any listed file is reported by name."""

import json

import pytest

from keras_gsp.storage.checksums import (
    CHECKSUMS,
    verify_checksums,
    write_checksums,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "inner.bin").write_bytes(b"12345")
    (tmp_path / "outer.txt").write_text("text")
    write_checksums(tmp_path)
    return tmp_path


def test_unchanged_files_pass_and_an_added_file_is_ignored(folder):
    verify_checksums(folder)
    (folder / "note.txt").write_text("new")
    verify_checksums(folder)


def test_damage_is_reported_by_name(folder):
    inner = folder / "a" / "inner.bin"
    for content in (b"12346", b"1234"):
        inner.write_bytes(content)
        with pytest.raises(ValueError, match=r"a/inner\.bin: changed"):
            verify_checksums(folder)
        verify_checksums(folder, skip=["a/inner.bin"])
    inner.unlink()
    with pytest.raises(ValueError, match=r"a/inner\.bin: missing"):
        verify_checksums(folder, skip=["a/inner.bin"])
    (folder / CHECKSUMS).unlink()
    with pytest.raises(ValueError, match=r"checksums\.json: missing"):
        verify_checksums(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"files": 3}',
        json.dumps({"algorithm": "md5", "files": {}}),
        json.dumps({"algorithm": "sha256", "files": {"../../x": "0"}}),
        json.dumps({"algorithm": "sha256", "files": {"outer.txt": 3}}),
    ],
)
def test_damaged_checksums_are_refused(folder, text):
    (folder / CHECKSUMS).write_text(text)
    with pytest.raises(ValueError, match=r"checksums\.json: damaged"):
        verify_checksums(folder)
