"""SHA-256 checksums of a folder's files, in its `checksums.json`."""

import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

CHECKSUMS = "checksums.json"


def write_checksums(folder: str | os.PathLike) -> None:
    """Writes the SHA-256 of every file of a folder to its `checksums.json`.

    Forces the files to the disk.
    """
    folder = Path(folder)
    files = {
        path.relative_to(folder).as_posix(): _digest(path, is_forced=True)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / CHECKSUMS
    }
    text = json.dumps({"algorithm": "sha256", "files": files}, indent=2)
    (folder / CHECKSUMS).write_text(text + "\n", encoding="utf-8")


def verify_checksums(
    folder: str | os.PathLike, *, skip: Collection[str] = ()
) -> None:
    """Raises `ValueError` unless all files of `checksums.json` are unchanged.

    Files named in `skip` must be there but are not read.
    """
    folder = Path(folder)
    damaged = []
    for name, digest in listed(folder).items():
        path = folder / name
        if not path.is_file():
            damaged.append(f"{name}: missing")
        elif name not in skip and _digest(path) != digest:
            damaged.append(f"{name}: changed")
    if damaged:
        raise ValueError(
            f"The files of {os.path.realpath(folder)!r} must be as they were "
            f"written. Received: {'; '.join(damaged)}. Copy or export it again."
        )


def listed(folder: Path) -> dict[str, str]:
    """Returns the checksums in a folder's `checksums.json` by file name."""
    try:
        content = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        if content["algorithm"] != "sha256":
            raise ValueError(f"algorithm {content['algorithm']!r}")
        files = content["files"]
        for name, digest in files.items():
            # A damaged name must not make us read files elsewhere.
            path = PurePosixPath(name)
            is_outside = path.is_absolute() or ".." in path.parts
            if is_outside or not isinstance(digest, str):
                raise ValueError(f"{name!r}: {digest!r}")
        return files
    except FileNotFoundError:
        reason = "missing"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"damaged ({error})"
    raise ValueError(
        f"{os.path.realpath(folder)!r} must hold the checksums of its files. "
        f"Received: {CHECKSUMS}: {reason}. Copy or export it again."
    )


def _digest(path, *, is_forced=False):
    # Opened for writing, or Windows cannot force it to the disk.
    if is_forced:
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


METADATA, INDEX = "metadata.json", "index.json"


def verified_facts(
    path: str | Path, *, skip: Collection[str] = ()
) -> dict[str, Any]:
    """Returns `metadata.json` or `index.json` if no file is damaged.

    Files named in `skip`, such as large mapped ones, must be there but are not
    read. Missing and changed files are a `ValueError` that names them; a folder
    with neither JSON file is a `FileNotFoundError`.
    """
    folder = Path(path)
    names = [name for name in (METADATA, INDEX) if (folder / name).is_file()]
    if not names:
        raise FileNotFoundError(
            f"`path` must hold {METADATA} or {INDEX}, as an export or a saved "
            f"index does. Received: {os.path.realpath(path)!r}."
        )
    verify_checksums(folder, skip=skip)
    return json.loads((folder / names[0]).read_text(encoding="utf-8"))
