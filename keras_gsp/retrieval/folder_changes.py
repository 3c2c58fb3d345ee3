"""What changed in a folder of images since they were embedded."""

import dataclasses
import os
import unicodedata
from collections.abc import Mapping
from typing import Any

from keras_gsp.data.decoding import IMAGE_ENDINGS
from keras_gsp.data.listed_files import folder_entries

# Size in bytes and time of the last change in nanoseconds.
Version = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class FolderChanges:
    """Differences between a folder and what was embedded of it.

    Names are paths below the folder, `"cat/1.jpg"`, sorted.

    Attributes:
        added: files that were not known: new ones, and those that could not be
            read before.
        changed: files of another size or time than when they were embedded.
        deleted: names that are known and gone.
        unchanged: number of files that stay as they are.
        failed: what `Retriever.sync` could not read, with the reason; tried
            again by the next call.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        counts = {
            "added": len(self.added),
            "embedded again": len(self.changed),
            "deleted": len(self.deleted),
            "failed": len(self.failed),
            "unchanged": self.unchanged,
        }
        return ", ".join(f"{n:,} {word}" for word, n in counts.items() if n)


def folder_changes(
    known: Mapping[str, Any], present: Mapping[str, Any]
) -> FolderChanges:
    """Compares the versions, by name, of embedded files and of those there."""
    common = known.keys() & present.keys()
    changed = sorted(name for name in common if known[name] != present[name])
    return FolderChanges(
        added=tuple(sorted(present.keys() - common)),
        changed=tuple(changed),
        deleted=tuple(sorted(known.keys() - common)),
        unchanged=len(common) - len(changed),
    )


def image_versions(root: str | os.PathLike) -> dict[str, tuple[str, Version]]:
    """Lists the images below a folder: name -> file and its version.

    Those of `gsp.data.image_folder`: each folder once, linked ones too, and
    names in Unicode's composed form (NFC).
    """
    root = os.path.abspath(root)
    start = len(os.path.join(root, ""))
    versions: dict[str, tuple[str, Version]] = {}
    for entry in folder_entries(root):
        if entry.name.lower().endswith(IMAGE_ENDINGS):
            name = entry.path[start:].replace(os.sep, "/")
            status = entry.stat()
            version = status.st_size, status.st_mtime_ns
            name = unicodedata.normalize("NFC", name)
            if name in versions:
                raise ValueError(
                    "Names of images must differ in Unicode's composed form. "
                    f"Received: {versions[name][0]!r} and {entry.path!r}."
                )
            versions[name] = entry.path, version
    return versions
