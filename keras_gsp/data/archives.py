"""Zip and tar archives of images, unpacked once into a cache."""

import hashlib
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path

from keras_gsp.storage.whole import whole_folder

_DAMAGED = tarfile.TarError, zipfile.BadZipFile, EOFError, lzma.LZMAError
_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# Images compress little: an archive that grows more may fill the disk.
MAX_RATIO = 100
# An archive may always grow to this many bytes, whatever its ratio.
FREE_BYTES = 64 * 2**20
MAX_BYTES = 500 * 2**30


def is_archive(path: str | Path) -> bool:
    """Returns whether a file name ends like that of a zip or tar archive."""
    return str(path).lower().endswith(_ENDINGS)


def cache_folder() -> Path:
    """Returns the folder for unpacked archives and features.

    It is `KERAS_GSP_CACHE`, else `keras_gsp` in the user's cache folder.
    """
    cache = os.environ.get("KERAS_GSP_CACHE")
    if cache:
        return Path(cache).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "keras_gsp"


def unpacked(archive: str | Path) -> Path:
    """Returns the folder of a zip or tar file's content.

    It is unpacked on first use into `cache_folder()`; a changed one again. The
    errors are those of `image_folder`.
    """
    archive = Path(archive).expanduser().resolve()
    if not archive.is_file():
        raise FileNotFoundError(f"There is no archive at {archive}.")
    status = archive.stat()
    identity = f"{archive}:{status.st_size}:{status.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    name = archive.name.split(".")[0]
    folder = cache_folder() / "archives" / f"{name}-{digest}"
    if folder.exists():
        return folder
    try:
        with whole_folder(folder) as aside:
            _unpack(archive, aside)
    except (*_DAMAGED, zlib.error) as error:
        raise ValueError(
            f"{archive} must be a whole zip or tar file. Received: {error}."
        ) from error
    except OSError:
        if not folder.exists():  # else another process was faster
            raise
    return folder


def _unpack(archive, folder):
    limit = min(max(FREE_BYTES, MAX_RATIO * archive.stat().st_size), MAX_BYTES)
    if archive.suffix.lower() == ".zip":
        with zipfile.ZipFile(archive) as packed:
            # Where a header understates a size, `zipfile` stops there.
            members = packed.infolist()
            _check_size(archive, sum(m.file_size for m in members), limit)
            for info in members:
                is_link = stat.S_ISLNK(info.external_attr >> 16)
                _check_member(archive, folder, info.filename, is_link)
            packed.extractall(folder)
        return
    # A compressed tar is read once: its sizes are only known on the way.
    with tarfile.open(archive) as content:
        # Python 3.11.4 has the filter; the checks here do not depend on it.
        content.extraction_filter = getattr(tarfile, "data_filter", None)
        total = 0
        for member in content:
            is_plain = member.isfile() or member.isdir()
            _check_member(archive, folder, member.name, not is_plain)
            total += member.size
            _check_size(archive, total, limit)
            content.extract(member, folder)


def _check_member(archive, folder, name, is_link):
    if is_link:
        raise ValueError(
            f"{archive} must hold files and folders only. "
            f"Received: the link {name!r}."
        )
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"{archive} must hold no path that leads out of it. "
            f"Received: {name!r}."
        )


def _check_size(archive, total, limit):
    if total > limit:
        raise ValueError(
            f"{archive} must unpack to at most {limit:,} bytes, "
            f"{MAX_RATIO} times its own size. Received: {total:,} bytes or "
            "more. Unpack it yourself if you trust it."
        )
