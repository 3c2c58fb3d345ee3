"""Checksums of an artefact's files: damage is said before it is loaded."""

import hashlib
import json
import os
from pathlib import Path

CHECKSUMS = "checksums.json"


def write_checksums(folder: str | os.PathLike) -> None:
    """Writes the SHA-256 of every file of a folder into `checksums.json`.

    Args:
        folder: an artefact whose files are all written.
    """
    folder = Path(folder)
    found = {
        path.relative_to(folder).as_posix(): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != CHECKSUMS
    }
    text = json.dumps({"algorithm": "sha256", "files": found}, indent=2)
    (folder / CHECKSUMS).write_text(text + "\n", encoding="utf-8")


def check_whole(folder: str | os.PathLike) -> None:
    """Raises unless every file is as it was written.

    It finds damage, by a disk or a copy that stopped. Someone who changes a
    file on purpose can change its checksum too.

    Args:
        folder: an artefact with `checksums.json`.

    Raises:
        ValueError: files that are missing, changed or new, by name; or no
            readable `checksums.json`.
    """
    folder = Path(folder)
    expected = _expected(folder)
    damaged = []
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            damaged.append(f"{name}: missing")
        elif _digest(path) != digest:
            damaged.append(f"{name}: changed")
    if damaged:
        raise ValueError(
            f"The files of {str(folder)!r} must be as they were written. "
            f"Received: {'; '.join(damaged)}. Copy or export it again."
        )


def _expected(folder):
    path = folder / CHECKSUMS
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        files = told["files"]
        if told["algorithm"] != "sha256":
            raise ValueError(f"algorithm {told['algorithm']!r}")
        # A name that leads out of the folder is no file of it.
        names = [folder / name for name in files]
        is_inside = all(
            name.resolve().is_relative_to(folder.resolve()) for name in names
        )
        if not is_inside or not all(isinstance(d, str) for d in files.values()):
            raise ValueError("names or checksums of another kind")
        return files
    except FileNotFoundError:
        reason = "missing"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"damaged ({error})"
    raise ValueError(
        f"{str(folder)!r} must hold the checksums of its files. "
        f"Received: {CHECKSUMS}: {reason}. Copy or export it again."
    )


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
