"""Damage to any listed file is reported by name."""

import json

import pytest

from keras_gsp.storage.checksums import (
    CHECKSUMS,
    verify_checksums,
    write_checksums,
)


def test_damage_is_reported_by_name(tmp_path):
    inner = tmp_path / "a" / "inner.bin"
    inner.parent.mkdir()
    inner.write_bytes(b"12345")
    write_checksums(tmp_path)
    (tmp_path / "note.txt").write_text("new")  # ignored
    verify_checksums(tmp_path)
    for content in (b"12346", b"1234"):
        inner.write_bytes(content)
        with pytest.raises(ValueError, match=r"a/inner\.bin: changed"):
            verify_checksums(tmp_path)
        verify_checksums(tmp_path, skip=["a/inner.bin"])
    inner.unlink()
    with pytest.raises(ValueError, match=r"a/inner\.bin: missing"):
        verify_checksums(tmp_path, skip=["a/inner.bin"])
    (tmp_path / CHECKSUMS).unlink()
    with pytest.raises(ValueError, match=r"checksums\.json: missing"):
        verify_checksums(tmp_path)
    for text in (
        "",
        "[]",
        "{}",
        '{"files": 3}',
        json.dumps({"algorithm": "md5", "files": {}}),
        json.dumps({"algorithm": "sha256", "files": {"../../x": "0"}}),
        json.dumps({"algorithm": "sha256", "files": {"note.txt": 3}}),
    ):
        (tmp_path / CHECKSUMS).write_text(text)
        with pytest.raises(ValueError, match=r"checksums\.json: damaged"):
            verify_checksums(tmp_path)
