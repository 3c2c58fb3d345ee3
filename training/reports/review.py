"""A page to decide on suspicious images: keep, relabel or drop.

It opens from disk and saves `decisions.csv`, which `gsp.data.image_folder`,
`gsp.data.ImageSet.from_csv` and `--decisions` read.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_gsp.data import ImageSet, Preprocessing, image_size
from keras_gsp.retrieval import Suspects
from training.reports.page import Section, picture_address, write_page

SHOWN = 300  # cards of one kind, at most
OF_A_CLASS = 3  # pictures that stand for a class
SIDE = 112
TITLES = {
    "wrong_labels": "Wrong labels?",
    "duplicates": "The same picture twice?",
    "outliers": "Not part of the collection?",
    "same_classes": "Two names for one class?",
}


def write_review(
    path: Path,
    title: str,
    lines: Sequence[str],
    images: ImageSet,
    embeddings: np.ndarray,
    suspects: Suspects,
    root: Path,
) -> dict[str, list[str]]:
    """Writes the page about the suspects among labeled image files.

    `lines` say what else was found; `embeddings` are (images, size);
    decisions name the images, which have paths, relative to the folder
    `root`. Returns what each card is about, by kind.
    """
    make = _Cards(images, embeddings, suspects, root)
    makers = make.wrong, make.double, make.outlier, make.merged
    legends, sections = {}, [Section("The collection", lines)]
    for (name, heading), card in zip(TITLES.items(), makers, strict=True):
        items = getattr(suspects, name)
        cards = [card(item) for item in items[:SHOWN]]
        text = _shown(len(items), "found")
        sections.append(Section(heading, [text], cards=cards))
        legends[name] = [card["legend"] for card in cards]
    lead = "Decide on these images, then save the list of decisions."
    write_page(path, "", f"Review {title}", lead, sections, images.class_names)
    return legends


def write_groups(
    path: Path,
    title: str,
    lines: Sequence[str],
    groups: Sequence[Sequence[str]],
    root: Path,
) -> None:
    """Writes the page about groups of near copies, files below `root`."""
    cards = []
    for group in groups[:SHOWN]:
        pictures = []
        for name in group:
            height, width = image_size((root / name).read_bytes())
            caption = f"{name}, {width} x {height}"
            pictures.append(_picture(root / name, caption))
        choices = [
            _choice("keep", group, "keep all"),
            _choice("drop", group[1:], "keep the largest, the first"),
        ]
        card = {"legend": f"{len(group)} files", "pictures": pictures}
        cards.append(card | {"choices": choices})
    text = _shown(len(groups), "groups")
    sections = [
        Section("The collection", lines),
        Section("The same picture several times?", [text], cards=cards),
    ]
    lead = "Decide on these images, then save the list of decisions."
    write_page(path, "", f"Review {title}", lead, sections, ["."])


class _Cards:
    """Makes a card of each suspect: a legend, pictures and choices."""

    def __init__(self, images, embeddings, suspects, root):
        self.images, self.suspects = images, suspects
        self._embeddings = embeddings
        self._names = [os.path.relpath(path, root) for path in images.paths]

    def wrong(self, item):
        other = str(self.suspects.suggested[item])
        card = self.outlier(item)
        card["legend"] += f". Is it {other}?"
        card["pictures"] += self._of_class(other, item)
        relabel = self._choice("relabel", [item], "relabel as", other)
        card["choices"].insert(1, relabel)
        return card

    def double(self, pair):
        one, two = pair
        names = self.images.names
        same = "one class" if names[one] == names[two] else "two classes"
        return {
            "legend": f"{self._names[one]} and {self._names[two]}, {same}",
            "pictures": [self._picture(i, names[i]) for i in pair],
            "choices": [
                self._choice("keep", pair, "keep both"),
                self._choice("drop", [two], "drop the second"),
                self._choice("drop", [one], "drop the first"),
            ],
        }

    def outlier(self, item):
        own = self.images.names[item]
        pictures = [self._picture(item, "the image")]
        return {
            "legend": f"{self._names[item]} is labeled {own}",
            "pictures": pictures + self._of_class(own, item),
            "choices": [self._choice(x, [item], x) for x in ("keep", "drop")],
        }

    def merged(self, pair):
        one, two = pair
        items = np.flatnonzero(self.images.names == two)
        return {
            "legend": f"{one} and {two}",
            "pictures": self._of_class(one) + self._of_class(two),
            "choices": [
                self._choice("keep", [], "keep both classes"),
                self._choice("relabel", items, f"all of {two} become", one),
            ],
        }

    def _choice(self, decision, items, words, label=None):
        paths = [self._names[item] for item in items]
        return _choice(decision, paths, words, label)

    def _of_class(self, name, item=None):
        """Pictures of a class, those nearest to an item first."""
        members = np.flatnonzero(self.images.names == name)
        members = members[members != item]
        if item is not None:
            near = self._embeddings[members] @ self._embeddings[item]
            members = members[np.argsort(-near, kind="stable")]
        return [self._picture(i, name) for i in members[:OF_A_CLASS]]

    def _picture(self, item, caption):
        return _picture(self.images.paths[item], caption)


def _choice(decision, paths, words, label=None):
    choice = {"decision": decision, "words": words, "label": label}
    return choice | {"paths": [*paths]}


def _picture(file, caption):
    pixels = Preprocessing(None, SIDE).decode(Path(file).read_bytes())
    source = picture_address(pixels, SIDE)
    return {"source": source, "caption": caption}


def _shown(count, what):
    rest = f", the first {SHOWN} are shown" if count > SHOWN else ""
    return f"{count:,} {what}{rest}."
