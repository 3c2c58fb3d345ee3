"""Data sets inside archives: unpacked once into a cache."""

import hashlib
import lzma
import os
import tarfile
import zipfile
import zlib
from pathlib import Path

_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    lzma.LZMAError,
    zlib.error,
)
_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_archive(path: Path) -> bool:
    """Whether the file's name ends like an archive's."""
    return str(path).lower().endswith(_ENDINGS)


def cache_folder() -> Path:
    """Where unpacked archives and features are kept.

    `KERAS_GSP_CACHE`, else `keras_gsp` in the user's cache folder.
    """
    cache = os.environ.get("KERAS_GSP_CACHE")
    if cache:
        return Path(cache).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "keras_gsp"


def unpacked(archive: str | Path) -> Path:
    """The folder with an archive's content, unpacked on first use.

    Args:
        archive: A zip or tar file. It may lie in a read-only folder: its
            content goes into `cache_folder()`, under a name made from the
            archive's path, size and date, so that a changed archive is
            unpacked anew.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged, or with members that would land elsewhere.
    """
    archive = Path(archive).resolve()
    if not archive.is_file():
        raise FileNotFoundError(f"There is no archive at {archive}.")
    status = archive.stat()
    identity = f"{archive}:{status.st_size}:{status.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    name = archive.name.split(".")[0]
    folder = cache_folder() / "archives" / f"{name}-{digest}"
    if not folder.exists():
        _unpack_aside(archive, folder)
    return folder


def _unpack_aside(archive, folder):
    try:
        # The package brings Keras along: not for an error or --help.
        from keras_gsp.storage.whole import whole_folder

        with whole_folder(folder) as aside:
            _unpack(archive, aside)
    except _DAMAGED as error:
        raise ValueError(
            f"{archive} must be a whole zip or tar file. Received: {error}."
        ) from error
    except OSError:
        if not folder.exists():  # else another process was faster
            raise


def _unpack(archive, folder):
    if archive.suffix.lower() != ".zip":
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        return
    with zipfile.ZipFile(archive) as content:
        for name in content.namelist():
            if not (folder / name).resolve().is_relative_to(folder.resolve()):
                raise ValueError(
                    f"{archive} must hold no path that leads out of it. "
                    f"Received: {name!r}."
                )
        content.extractall(folder)
