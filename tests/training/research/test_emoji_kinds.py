"""Emoji sorted by the groups of Unicode's list."""

import zipfile

import pytest

from training.research.emoji_kinds import (
    Command,
    kinds_of,
    sort_archive,
    with_background,
)

LISTING = """# emoji-test.txt
# group: Animals & Nature

# subgroup: animal-mammal
1F435 ; fully-qualified # 🐵 E0.6 monkey face
1F412 ; fully-qualified # 🐒 E0.6 monkey

# group: Travel & Places
1F55B ; fully-qualified # 🕛 E0.6 twelve o’clock

# group: Objects
1F4A1 ; fully-qualified # 💡 E0.6 light bulb
"""


def test_kinds_are_groups_or_the_largest_sub_groups():
    assert with_background(kinds_of(LISTING), None) == {
        "monkey-face": "animals-nature",
        "monkey": "animals-nature",
        "twelve-oclock": "travel-places",
        "light-bulb": "background",
    }
    assert kinds_of(LISTING, "subgroup")["monkey"] == "animal-mammal"
    # Every fifth sub-group distracts.
    kinds = {f"{n}-{i}": str(n) for n in range(12) for i in range(12 - n)}
    found = with_background(kinds, 10)
    assert found == {
        slug: "background" if kind in "49" else kind
        for slug, kind in kinds.items()
        if len(kind) == 1
    }


def test_drawings_are_sorted_and_unknown_ones_left_out(tmp_path):
    source, target = tmp_path / "emoji.zip", tmp_path / "kinds.zip"
    listing = tmp_path / "emoji-test.txt"
    listing.write_text(LISTING, "utf-8")
    with zipfile.ZipFile(source, "w") as made:
        for slug in ("monkey", "light-bulb", "x-ray"):
            made.writestr(f"{slug}/noto.jpg", f"{slug}/noto.jpg")
    assert sort_archive(Command(source, listing, target)) == 2
    with zipfile.ZipFile(target) as found:
        assert {name: found.read(name) for name in found.namelist()} == {
            "animals-nature/monkey/noto.jpg": b"monkey/noto.jpg",
            "background/light-bulb/noto.jpg": b"light-bulb/noto.jpg",
        }
    with pytest.raises(FileExistsError, match="`target` must be new"):
        sort_archive(Command(source, listing, target))
    listing.write_text("# nothing\n")
    with pytest.raises(ValueError, match="no emoji with a group"):
        sort_archive(Command(source, listing, tmp_path / "new.zip"))
    assert not (tmp_path / "new.zip").exists()
