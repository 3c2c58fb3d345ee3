"""Archives are unpacked whole, within limits, and never outside."""

import io
import stat
import tarfile
import zipfile

import pytest

from keras_gsp.data import archives
from keras_gsp.data.archives import unpacked

pytestmark = pytest.mark.usefixtures("cache")


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as content:
        for name, data in members.items():
            content.writestr(name, data)
    return path


def test_an_archive_is_unpacked_once_and_again_when_it_changes(tmp_path):
    archive = zipped(tmp_path / "birds.zip", a=b"1")
    first = unpacked(archive)
    assert unpacked(str(archive)) == first
    zipped(archive, a=b"two")
    assert unpacked(archive) != first
    assert (unpacked(archive) / "a").read_bytes() == b"two"


def test_a_damaged_or_hostile_zip_is_refused(tmp_path, cache):
    (tmp_path / "cut.zip").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="cut.zip must be a whole"):
        unpacked(tmp_path / "cut.zip")
    archive = zipped(tmp_path / "out.zip", **{"../../outside.txt": b"x"})
    with pytest.raises(ValueError, match="outside"):
        unpacked(archive)
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as content:
        member = zipfile.ZipInfo("photo.jpg")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        content.writestr(member, "/etc/passwd")
    with pytest.raises(ValueError, match="the link 'photo.jpg'"):
        unpacked(tmp_path / "link.zip")
    assert not [file for file in cache.rglob("*") if file.is_file()]
    with pytest.raises(FileNotFoundError, match="none.zip"):
        unpacked(tmp_path / "none.zip")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_of_zeros_is_refused(tmp_path, cache, kind, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 2**20)
    zeros = bytes(2**22)
    path = tmp_path / f"zeros.{kind}"
    if kind == "zip":
        zipped(path, zeros=zeros)
    else:
        with tarfile.open(path, "w:gz") as content:
            member = tarfile.TarInfo("zeros")
            member.size = len(zeros)
            content.addfile(member, io.BytesIO(zeros))
    with pytest.raises(ValueError, match="at most 1,048,576 bytes"):
        unpacked(path)
    assert not [file for file in cache.rglob("*") if file.is_file()]
    monkeypatch.setattr(archives, "FREE_BYTES", 2**22)
    assert (unpacked(path) / "zeros").stat().st_size == 2**22


@pytest.mark.parametrize("way", ["path", "absolute", "link", "hard link"])
def test_a_tar_file_that_leads_out_is_refused(way, tmp_path, cache):
    outside = tmp_path / "outside.txt"
    outside.write_text("precious")
    member = tarfile.TarInfo("inside.txt")
    with tarfile.open(tmp_path / "out.tar", "w") as content:
        if way in ("path", "absolute"):
            member.name = {
                "path": "../../../outside.txt",
                "absolute": f"/..{outside}",
            }[way]
            member.size = 1
            content.addfile(member, io.BytesIO(b"x"))
        else:
            member.type = tarfile.SYMTYPE if way == "link" else tarfile.LNKTYPE
            member.linkname = str(outside)
            content.addfile(member)
    with pytest.raises(ValueError, match="(out|in)side.txt"):
        unpacked(tmp_path / "out.tar")
    assert outside.read_text() == "precious"
    assert not [path for path in cache.rglob("*") if path.is_file()]
