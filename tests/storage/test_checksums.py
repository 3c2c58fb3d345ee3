"""Damage to any file of an artefact is named before it is loaded."""

import json

import pytest

from keras_gsp.storage.checksums import (
    CHECKSUMS,
    check_whole,
    write_checksums,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "inner.bin").write_bytes(b"12345")
    (tmp_path / "outer.txt").write_text("text")
    write_checksums(tmp_path)
    return tmp_path


def test_a_whole_folder_passes(folder):
    check_whole(folder)
    (folder / "note.txt").write_text("a file more does no harm")
    check_whole(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.write_bytes(b"12346"), "a/inner.bin: changed"),
        (lambda f: f.write_bytes(b"1234"), "a/inner.bin: changed"),
        (lambda f: f.unlink(), "a/inner.bin: missing"),
    ],
)
def test_damage_is_named(folder, damage, message):
    damage(folder / "a" / "inner.bin")
    with pytest.raises(ValueError, match=message):
        check_whole(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"files": 3}',
        json.dumps({"algorithm": "sha256", "files": {"../../x": "0"}}),
        json.dumps({"algorithm": "sha256", "files": {"outer.txt": 3}}),
    ],
)
def test_damaged_checksums_are_refused(folder, text):
    (folder / CHECKSUMS).write_text(text)
    with pytest.raises(ValueError, match="checksums.json: damaged"):
        check_whole(folder)


def test_absent_checksums_are_refused(folder):
    (folder / CHECKSUMS).unlink()
    with pytest.raises(ValueError, match="checksums.json: missing"):
        check_whole(folder)
