"""Sorts drawings of emoji by kind, for the study `emoji-kinds`.

    python -m training.research.emoji_kinds emoji.zip emoji-test.txt kinds.zip

`emoji-test.txt` is Unicode's list of emoji (of version 14 for the published
numbers), whose groups are the kinds: `SLUG/SET.jpg` becomes `KIND/SLUG/SET.jpg`.
Objects, symbols and flags become the kind `background`. Emoji whose slug is no
name of the list are left out.
"""

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_gsp.data.archives import unpacked
from training.runs.command_line import check_new, run_command

BACKGROUNDS = ("objects", "symbols", "flags")


def kinds_of(listing: str) -> dict[str, str]:
    """Slug -> kind of each emoji in the text of `emoji-test.txt`."""
    kinds: dict[str, str] = {}
    kind = ""
    for line in listing.splitlines():
        if line.startswith("# group: "):
            kind = _slug(line.removeprefix("# group: "))
        elif found := re.search(r" # \S+ E\d+\.\d+ (.+)", line):
            kinds.setdefault(_slug(found[1]), kind)
    if not any(kinds.values()):
        raise ValueError(
            "The list must have emoji in groups, as `emoji-test.txt` has. "
            "Received: no emoji with a group."
        )
    return {
        slug: "background" if kind in BACKGROUNDS else kind
        for slug, kind in kinds.items()
    }


@dataclass(frozen=True)
class Command:
    """Sorts drawings of emoji by kind."""

    source: Annotated[Path, tyro.conf.Positional]
    """Archive of drawings, `SLUG/SET.jpg`."""
    listing: Annotated[Path, tyro.conf.Positional]
    """Unicode's `emoji-test.txt`."""
    target: Annotated[Path, tyro.conf.Positional]
    """Archive to write."""


def sort_archive(command: Command) -> int:
    """Writes the archive of kinds; returns how many emoji it has."""
    check_new(command, "target")
    kinds, found = kinds_of(command.listing.read_text("utf-8")), set()
    drawings = sorted(unpacked(command.source).glob("*/*"))
    with zipfile.ZipFile(command.target, "w") as made:
        for path in drawings:
            slug = path.parent.name
            if slug in kinds:
                made.write(path, f"{kinds[slug]}/{slug}/{path.name}")
                found.add(slug)
    print(f"{len(found)} emoji in {command.target}")
    return len(found)


def _slug(name):
    name = name.lower().replace("’", "")
    return re.sub("[^a-z0-9]+", "-", name).strip("-")


if __name__ == "__main__":
    run_command("research.emoji_kinds", __doc__, Command, sort_archive, None)
