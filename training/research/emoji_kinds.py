"""Sorts drawings of emoji by kind, for the study `emoji-kinds`.

    python -m training.research.emoji_kinds emoji.zip emoji-test.txt kinds.zip

`emoji-test.txt` is Unicode's list of emoji (of version 14 for the published
numbers), whose groups are the kinds: `SLUG/SET.jpg` becomes `KIND/SLUG/SET.jpg`.
Objects, symbols and flags become the kind `background`. With `--sub-groups 20`
the kinds are the 20 sub-groups with the most emoji, every fifth of them
`background`, for the study `zsr-controls`. Emoji whose slug is no name of the
list are left out.
"""

import re
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_gsp.data.archives import unpacked
from training.recipes.settings import positive
from training.runs.command_line import check_new, run_command

BACKGROUNDS = ("objects", "symbols", "flags")


def kinds_of(listing: str, heading: str = "group") -> dict[str, str]:
    """Slug -> kind of each emoji in the text of `emoji-test.txt`.

    `heading` is `group` or `subgroup`.
    """
    kinds: dict[str, str] = {}
    kind = ""
    for line in listing.splitlines():
        if line.startswith(f"# {heading}: "):
            kind = _slug(line.removeprefix(f"# {heading}: "))
        elif found := re.search(r" # \S+ E\d+\.\d+ (.+)", line):
            kinds.setdefault(_slug(found[1]), kind)
    if not any(kinds.values()):
        raise ValueError(
            "The list must have emoji in groups, as `emoji-test.txt` has. "
            f"Received: no emoji with a {heading}."
        )
    return kinds


def with_background(
    kinds: dict[str, str], sub_groups: int | None
) -> dict[str, str]:
    """Names the kinds that distract, of groups or the largest sub-groups."""
    backgrounds: tuple[str, ...] = BACKGROUNDS
    if sub_groups is not None:
        counts = Counter(kinds.values()).most_common(sub_groups)
        largest = [kind for kind, _ in counts]
        kinds = {s: kind for s, kind in kinds.items() if kind in largest}
        backgrounds = tuple(largest[4::5])
    return {
        slug: "background" if kind in backgrounds else kind
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
    sub_groups: Annotated[int | None, positive] = None
    """Number of sub-groups that are the kinds; None: the groups."""


def sort_archive(command: Command) -> int:
    """Writes the archive of kinds; returns how many emoji it has."""
    check_new(command, "target")
    heading = "group" if command.sub_groups is None else "subgroup"
    kinds, found = kinds_of(command.listing.read_text("utf-8"), heading), set()
    drawings = sorted(unpacked(command.source).glob("*/*"))
    # Of the emoji that are drawn.
    drawn = {path.parent.name for path in drawings}
    kinds = {slug: kind for slug, kind in kinds.items() if slug in drawn}
    kinds = with_background(kinds, command.sub_groups)
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
