"""Examines a data set: `python -m training.doctor --data-dir images.zip`.

Lists images that cannot be read or are too small, copies, and class sizes.
Exits with 1 if an image, or nearly the same one, is in two splits: the scores
of unseen classes would then be wrong.

A folder without class folders is examined as it is: groups of copies are
listed, and with `--review` put on a page. Of labeled images,
`--encoder` and `--review review.html` together also look for wrong labels,
near duplicates, outliers and classes that are one, and writes a page on which
to decide. The page saves `decisions.csv` for `--decisions`.
"""

import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from training.runs.command_line import check_new, counted, run_command

LISTED = 5
SUSPECTED = {
    "wrong_labels": ("label", " that may be wrong"),
    "duplicates": ("pair", " of near copies"),
    "outliers": ("outlier", ""),
    "same_classes": ("pair", " of classes that may be one"),
}


@dataclass(frozen=True)
class DoctorCommand:
    """Examines a data set before training."""

    data_dir: str
    """Folder or archive of images, with one folder per class; or a list."""
    dataset: Literal["folder", "csv"] = "folder"
    """A folder, or a list with the columns path and label."""
    encoder: Path | None = None
    """Run directory or .keras file of the encoder that compares the images;
    for `review`."""
    review: Path | None = None
    """New HTML file on which to decide about suspicious images; of images with
    classes they are found by `encoder`."""
    decisions: Path | None = None
    """Decisions that the page saved: images to drop, labels to change."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    if run_command("doctor", __doc__, DoctorCommand, _examine, arguments):
        sys.exit(1)


def _examine(command):
    from tqdm import tqdm

    from keras_gsp.data import ImageSet
    from training.datasets.inspection import inspect
    from training.reports.review import write_review

    check_new(command, "review")
    splits = _splits(command)
    is_labeled = not isinstance(splits, ImageSet)
    options = command.encoder, command.review
    if is_labeled and (options[0] is None) != (options[1] is None):
        raise ValueError(
            "`encoder` and `review` of labeled images must come together. "
            "Received: encoder={}, review={}.".format(*options)
        )
    found = inspect(splits, progress=partial(tqdm, desc="Looking at images"))
    lines, sections, classes = list(_report(splits, found)), [], ["."]
    print(*lines, sep="\n")
    if not is_labeled:
        sections = [_groups(command, found)]
    elif command.review is not None:
        sections, classes = _suspects(command)
    if command.review is not None:
        name = Path(command.data_dir).name
        write_review(command.review, name, lines, sections, classes)
        print(f"{command.review}: written; open it and decide")
    print(f"Next: {_next(command, found, is_labeled)}")
    return found.has_leak


def _splits(command):
    """Reads the data set; a folder without class folders is not split."""
    from training.datasets.own_images import csv_splits, folder_splits

    if command.dataset == "csv":
        return csv_splits(command.data_dir, decisions=command.decisions)
    images = _images(command)
    if images.num_classes == 1:
        return images
    return folder_splits(command.data_dir, decisions=command.decisions)


def _images(command):
    """The images without a split."""
    import keras_gsp as gsp

    options: dict[str, Any] = {"decisions": command.decisions}
    if command.dataset == "csv":
        options["on_missing"] = "skip"
        return gsp.data.ImageSet.from_csv(command.data_dir, **options)
    return gsp.data.image_folder(command.data_dir, **options)


def _groups(command, found):
    """Prints the groups of copies; returns the section to decide on them."""
    from training.datasets.layout import images_root
    from training.reports.review import TITLES, group_cards

    root = images_root(command.data_dir)
    groups = [group for part in found.copies.values() for group in part]
    if command.encoder is not None:
        import keras_gsp as gsp
        from training.runs.scoring import load_encoder

        retriever = gsp.retrieval.Retriever.from_folder(
            root, load_encoder(command.encoder)
        )
        groups = [list(group) for group in gsp.retrieval.duplicates(retriever)]
    names = [" = ".join(group) for group in groups]
    rest = " of near copies, the largest first"
    print(*_listed(names, "group", rest), sep="\n")
    cards = [] if command.review is None else group_cards(groups, root)
    return TITLES["duplicates"], len(groups), cards


def _suspects(command):
    """Compares embeddings and prints what was found; sections and classes."""
    import keras_gsp as gsp
    from keras_gsp._labeled_batches import encoded
    from training.datasets.layout import images_root
    from training.reports.review import TITLES, suspect_cards
    from training.runs.scoring import load_encoder, load_preprocessing

    expected = load_preprocessing(command.encoder)
    if expected is None:
        raise ValueError(
            "`encoder` must know how its images are prepared, by "
            "`build_encoder(..., preprocessing=...)`. Received: "
            f"{command.encoder}, which does not."
        )
    images = _images(command).readable()
    # Few at once: photographs of many megapixels take much memory.
    batches = gsp.data.image_batches(
        images, preprocessing=expected, batch_size=16
    )
    embeddings = encoded(load_encoder(command.encoder), batches)[0]
    found = gsp.retrieval.suspects(embeddings, images.names)
    root, sections = images_root(command.data_dir), []
    cards = suspect_cards(images, embeddings, found, root)
    for kind, (noun, rest) in SUSPECTED.items():
        count, legends = len(getattr(found, kind)), cards[kind]
        names = [card["legend"] for card in legends]
        print(*_listed(names, noun, rest, count), sep="\n")
        sections.append((TITLES[kind], count, legends))
    return sections, images.class_names


def _next(command, found, is_labeled):
    """Returns the command that trains, or what to do before it."""
    if found.has_leak:
        return (
            "remove images of each group across the split, or put them all "
            "into one class; then run this command again"
        )
    if command.review is not None:
        train = " and training.train" if is_labeled else ""
        return (
            f"decide on {command.review}, save decisions.csv, then give this "
            f"command{train} --decisions decisions.csv"
        )
    if not is_labeled:
        page = "review.html"
        words = ["python", "-m", "training.doctor", "--data-dir"]
        return shlex.join([*words, command.data_dir, "--review", page])
    given = {
        "--data-dir": command.data_dir,
        "--decisions": command.decisions,
        "--corrupt-images": "skip" if found.unreadable else None,
    }
    words = ["python", "-m", "training.train", command.dataset]
    for option, value in given.items():
        if value is not None:
            words += [option, str(value)]
    return shlex.join(words)


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
    yield "leakage" if found.has_leak else "no leakage"


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
