"""A page to decide on suspicious images: keep, relabel or drop.

It opens from disk and saves `decisions.csv`, which `gsp.data.image_folder`,
`gsp.data.ImageSet.from_csv` and `--decisions` read.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data import ImageSet, Preprocessing, image_size
from keras_gsp.retrieval import Suspects
from training.reports.page import Section, picture_address, write_page

SHOWN = 300  # cards of one kind, at most
OF_A_CLASS = 3  # pictures that stand for a class
SIDE = 112
# Kind of suspects -> heading, noun, and what follows it.
KINDS = {
    "wrong_labels": ("Wrong labels?", "label", " that may be wrong"),
    "duplicates": ("The same picture twice?", "pair", " of near copies"),
    "outliers": ("Not part of the collection?", "outlier", ""),
    "same_classes": (
        *("Two names for one class?", "pair"),
        " of classes that may be one",
    ),
}


def write_review(
    path: Path,
    title: str,
    lines: Sequence[str],
    sections: Sequence[tuple[str, int, list[dict]]],
    classes: Sequence[str],
) -> None:
    """Writes the page: what was found, and sections of cards to decide on.

    A section is a heading, how many were found, and a card of each of the
    first. Decisions name images relative to the folder of `suspect_cards` or
    `group_cards`.
    """
    made = [Section("The collection", lines)]
    for heading, count, cards in sections:
        rest = f", the first {SHOWN} are shown" if count > SHOWN else ""
        made.append(Section(heading, [f"{count:,} found{rest}."], cards=cards))
    lead = "Decide on these images, then save the list of decisions."
    write_page(path, "", f"Review {title}", lead, made, classes)


def group_cards(groups: Sequence[Sequence[str]], root: Path) -> list[dict]:
    """Makes a card of each group of near copies, files below `root`."""
    cards = []
    for group in groups[:SHOWN]:
        pictures = []
        for name in group:
            height, width = image_size((root / name).read_bytes())
            caption = f"{name}, {width} x {height}"
            pictures.append(_picture(root / name, caption))
        keep = _choice("keep", group, "keep all")
        drop = _choice("drop", group[1:], "keep the largest, the first")
        cards.append(_card(f"{len(group)} files", pictures, keep, drop))
    return cards


def suspect_cards(
    images: ImageSet, embeddings: np.ndarray, found: Suspects, root: Path
) -> dict[str, list[dict]]:
    """Makes cards of each kind of suspects among labeled files below `root`.

    `embeddings` are (images, size).
    """
    make = _Cards(images, embeddings, found, root)
    makers = make.wrong, make.double, make.outlier, make.merged
    return {
        kind: [card(item) for item in getattr(found, kind)[:SHOWN]]
        for kind, card in zip(KINDS, makers, strict=True)
    }


class _Cards:
    """Makes a card of each suspect: a legend, pictures and choices."""

    def __init__(self, images, embeddings, found, root):
        self.images, self.labels, self.found = images, images.names, found
        self.embeddings = embeddings
        self.names = [os.path.relpath(path, root) for path in images.paths]

    def wrong(self, item):
        other = str(self.found.suggested[item])
        card = self.outlier(item)
        card["legend"] += f". Is it {other}?"
        card["pictures"] += self._of_class(other, item)
        relabel = self._choice("relabel", [item], "relabel as", other)
        card["choices"].insert(1, relabel)
        return card

    def double(self, pair):
        one, two = pair
        is_same = self.labels[one] == self.labels[two]
        return _card(
            f"{self.names[one]} and {self.names[two]}, "
            f"{'one class' if is_same else 'two classes'}",
            [self._picture(i, self.labels[i]) for i in pair],
            self._choice("keep", pair, "keep both"),
            self._choice("drop", [two], "drop the second"),
            self._choice("drop", [one], "drop the first"),
        )

    def outlier(self, item):
        label = self.labels[item]
        picture = self._picture(item, "the image")
        return _card(
            f"{self.names[item]} is labeled {label}",
            [picture, *self._of_class(label, item)],
            self._choice("keep", [item], "keep"),
            self._choice("drop", [item], "drop"),
        )

    def merged(self, pair):
        one, two = pair
        items = np.flatnonzero(self.labels == two)
        return _card(
            f"{one} and {two}",
            self._of_class(one) + self._of_class(two),
            self._choice("keep", [], "keep both classes"),
            self._choice("relabel", items, f"all of {two} become", one),
        )

    def _choice(self, decision, items, words, label=None):
        paths = [self.names[item] for item in items]
        return _choice(decision, paths, words, label)

    def _of_class(self, name, item=None):
        """Pictures of a class, those nearest to an item first."""
        members = np.flatnonzero(self.labels == name)
        members = members[members != item]
        if item is not None:
            near = self.embeddings[members] @ self.embeddings[item]
            members = members[np.argsort(-near, kind="stable")]
        return [self._picture(i, name) for i in members[:OF_A_CLASS]]

    def _picture(self, item, caption):
        return _picture(self.images.paths[item], caption)


def _card(legend, pictures, *choices):
    return {"legend": legend, "pictures": pictures, "choices": [*choices]}


def _choice(decision, paths, words, label=None) -> dict[str, Any]:
    choice = {"decision": decision, "words": words, "label": label}
    return choice | {"paths": [*paths]}


def _picture(file, caption):
    pixels = Preprocessing(None, SIDE).decode(Path(file).read_bytes())
    return {"source": picture_address(pixels, SIDE), "caption": caption}
