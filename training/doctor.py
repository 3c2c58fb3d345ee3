"""Examines a data set: `python -m training.doctor --data-dir images.zip`.

Lists images that cannot be read or are too small, copies, and class sizes.
Exits with 1 if an image, or nearly the same one, is in two splits: the scores
of unseen classes would then be wrong.

`--review review.html` writes a page on which to decide on the copies; it saves
`decisions.csv` for `--decisions`. With `--encoder` images are compared by their
embeddings too: copies of a folder without class folders; of labeled images
also wrong labels, outliers and classes that are one.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from training.runs.command_line import (
    check_new,
    command_of,
    counted,
    is_list,
    run_command,
)

LISTED = 5


@dataclass(frozen=True)
class DoctorCommand:
    """Examines a data set before training."""

    data_dir: str
    """Folder or archive of images, with one folder per class, or CSV list with
    the columns path and label."""
    encoder: Path | None = None
    """Run directory or .keras file of the encoder that compares the images."""
    review: Path | None = None
    """New HTML file on which to decide about suspicious images."""
    decisions: Path | None = None
    """Decisions that the page saved: images to drop, labels to change."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    if run_command("doctor", __doc__, DoctorCommand, _examine, arguments):
        sys.exit(1)


def _examine(command):
    from tqdm import tqdm

    from training.datasets.inspection import inspect
    from training.datasets.layout import images_root
    from training.datasets.own_images import csv_splits, folder_splits
    from training.reports.review import write_review

    check_new(command, "review")
    images, root = _images(command), images_root(command.data_dir)
    is_labeled, splits = images.num_classes > 1, images
    if is_labeled:
        read = csv_splits if is_list(command.data_dir) else folder_splits
        splits = read(command.data_dir, decisions=command.decisions)
    progress = partial(tqdm, desc="Looking at images")
    found = inspect(splits, root, progress=progress)
    lines = list(_report(splits, found))
    print(*lines, sep="\n")
    if is_labeled and command.encoder is not None:
        sections = _suspects(command, images, root)
    else:
        sections = [_groups(command, found, root, is_labeled)]
    if command.review is not None:
        name = Path(command.data_dir).name
        write_review(command.review, name, lines, sections, images.class_names)
        print(f"{command.review}: written")
    num_suspects = sum(count for _, count, _ in sections)
    print(f"Next: {_next(command, found, is_labeled, num_suspects)}")
    return found.has_leak


def _images(command):
    """The images without a split."""
    import keras_gsp as gsp

    options: dict[str, Any] = {"decisions": command.decisions}
    if is_list(command.data_dir):
        options["on_missing"] = "skip"
        return gsp.data.ImageSet.from_csv(command.data_dir, **options)
    return gsp.data.image_folder(command.data_dir, **options)


def _groups(command, found, root, is_labeled):
    """Returns the section of copies; prints those of a flat folder."""
    from training.reports.review import KINDS, group_cards

    groups = [group for part in found.copies.values() for group in part]
    if command.encoder is not None:
        import keras_gsp as gsp
        from training.runs.scoring import load_encoder

        retriever = gsp.retrieval.Retriever.from_folder(
            root, load_encoder(command.encoder)
        )
        groups = [list(group) for group in gsp.retrieval.duplicates(retriever)]
    if not is_labeled:
        names = [" = ".join(group) for group in groups]
        rest = " of near copies, the largest first"
        print(*_listed(names, "group", rest), sep="\n")
    cards = [] if command.review is None else group_cards(groups, root)
    return KINDS["duplicates"][0], len(groups), cards


def _suspects(command, images, root):
    """Compares embeddings and prints what was found; returns the sections."""
    import keras_gsp as gsp
    from training.reports.review import KINDS, suspect_cards
    from training.runs.scoring import load_encoder

    images, index = images.readable(), gsp.retrieval.ExactIndex()
    retriever = gsp.retrieval.Retriever(load_encoder(command.encoder), index)
    embeddings = retriever.embed(images.paths)
    found = gsp.retrieval.suspects(embeddings, images.names)
    cards, sections = suspect_cards(images, embeddings, found, root), []
    for kind, (heading, noun, rest) in KINDS.items():
        count, legends = len(getattr(found, kind)), cards[kind]
        names = [card["legend"] for card in legends]
        print(*_listed(names, noun, rest, count), sep="\n")
        sections.append((heading, count, legends))
    return sections


def _next(command, found, is_labeled, num_suspects):
    """Returns the command that trains, or what to do before it."""
    if found.has_leak:
        return (
            "remove images of each group across the split, or put them all "
            "into one class; then run this command again"
        )
    if command.review is not None and num_suspects:
        train = " and training.train" if is_labeled else ""
        return (
            f"decide on {command.review}, save decisions.csv, then give this "
            f"command{train} --decisions decisions.csv"
        )
    if not is_labeled:
        if command.review is None and num_suspects:
            return "this command with --review review.html"
        return "nothing is to be decided; search, as in the guide flat-folder"
    settings: dict[str, Any] = {"data_dir": command.data_dir}
    if command.decisions is not None:
        settings["decisions"] = command.decisions
    if found.unreadable:
        settings["corrupt_images"] = "skip"
    return command_of(
        "csv" if is_list(command.data_dir) else "folder", settings
    )


def _report(splits, found):
    """Yields the lines that are printed, and shown on the page."""
    import numpy as np

    from keras_gsp.data import ImageSet
    from training.datasets.inspection import LEAK, MIN_SIDE, scored_sides

    is_labeled = not isinstance(splits, ImageSet)
    for side, images in scored_sides(splits).items():
        sizes = images.class_sizes
        if not is_labeled:
            yield f"{counted(len(images), 'image')} without labels"
            continue
        yield (
            f"{side}: {counted(len(images), 'image')} of "
            f"{counted(images.num_classes, 'class')}, {sizes.min()} to "
            f"{sizes.max()} in each (median {np.median(sizes):g})"
        )
        alone = [images.class_names[i] for i in np.flatnonzero(sizes == 1)]
        rest = " with one image, which is never a positive"
        yield from _listed(alone, "class", rest)
    unreadable = [f"{name}: {why}" for name, why in found.unreadable.items()]
    yield from _listed(unreadable, "unreadable image")
    small = f" of fewer than {MIN_SIDE} pixels a side"
    yield from _listed(found.tiny, "image", small)
    yield from _listed(found.blank, "blank image")
    if not is_labeled:
        return  # Groups of copies follow.
    # Leaks are last, beside the verdict.
    for where in sorted(found.copies, key=LEAK.__eq__):
        names = [*map(" = ".join, found.copies[where])]
        yield from _listed(names, "group", f" of copies {where}")
    yield "leakage" if found.has_leak else "no leakage (copies across sides)"


def _listed(names, noun, rest="", count=None):
    """Yields how many there are and the first names."""
    count = len(names) if count is None else count
    if count:
        yield counted(count, noun) + rest
    yield from (f"    {name}" for name in names[:LISTED])
    if count > LISTED:
        yield f"    ... and {count - LISTED:,} more"


if __name__ == "__main__":
    main()
