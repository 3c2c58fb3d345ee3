"""Examines a data set: `python -m training.doctor --data-dir images.zip`.

Lists images that cannot be read or are too small, copies, and class sizes.
Exits with 1 if an image, or nearly the same one, is in two splits: the scores
of unseen classes would then be wrong.

With `--encoder` and `--review review.html` it also looks for wrong labels,
near duplicates, outliers and classes that are one, and writes a page on which
to decide. The page saves `decisions.csv` for `--decisions`.
"""

import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from training.runs.command_line import check_new, run_command

LISTED = 5


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
    """New HTML file on which to decide about suspicious images, found by
    their embeddings."""
    decisions: Path | None = None
    """Decisions that the page saved: images to drop, labels to change."""

    def __post_init__(self) -> None:
        if self.review is not None and self.encoder is None:
            raise ValueError(
                "`review` needs an encoder: --encoder runs/NAME or --encoder "
                "FILE.keras. Received: encoder=None."
            )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    if run_command("doctor", __doc__, DoctorCommand, _examine, arguments):
        sys.exit(1)


def _examine(command):
    from tqdm import tqdm

    from training.datasets.inspection import inspect
    from training.datasets.own_images import csv_splits, folder_splits

    check_new(command, "review")
    read: Any = {"folder": folder_splits, "csv": csv_splits}[command.dataset]
    splits = read(command.data_dir, decisions=command.decisions)
    progress = partial(tqdm, desc="Looking at images")
    found = inspect(splits, progress=progress)
    lines = list(_report(splits, found))
    print(*lines, sep="\n")
    if command.review is not None:
        _review(command, lines)
    print(f"Next: {_next(command, found)}")
    return found.has_leak


def _review(command, lines):
    """Writes the page to decide on, and prints what was found."""
    import keras_gsp as gsp
    from keras_gsp._labeled_batches import encoded
    from training.datasets.layout import images_root
    from training.reports.review import write_review
    from training.runs.scoring import load_encoder, load_preprocessing

    expected = load_preprocessing(command.encoder)
    if expected is None:
        raise ValueError(
            "`encoder` must know how its images are prepared, by "
            "`build_encoder(..., preprocessing=...)`. Received: "
            f"{command.encoder}, which does not."
        )
    own: dict[str, Any] = {"decisions": command.decisions}
    if command.dataset == "csv":
        images = gsp.data.csv_list(command.data_dir, on_missing="skip", **own)
    else:
        images = gsp.data.image_folder(command.data_dir, **own)
    usable = gsp.data.readable_images(images.paths, on_error="skip").indices
    images = images.subset(usable)
    batches = gsp.data.image_batches(images, preprocessing=expected)
    embeddings = encoded(load_encoder(command.encoder), batches)[0]
    found = gsp.retrieval.suspects(embeddings, images.names)
    name, root = Path(command.data_dir).name, images_root(command.data_dir)
    facts = name, lines, images, embeddings, found, root
    legends = write_review(command.review, *facts)
    for kind, names in legends.items():
        what = f"of {kind.replace('_', ' ')}, suspected"
        for line in _listed(names, what, len(getattr(found, kind))):
            print(line)
    print(f"{command.review}: written; open it and decide")


def _next(command, found):
    """Returns the command that trains, or what to do before it."""
    if found.has_leak:
        return (
            "remove one image of each pair across the split, or put both "
            "into one class; then run this command again"
        )
    if command.review is not None:
        return (
            f"decide on {command.review}, save decisions.csv, then give this "
            "command and training.train --decisions decisions.csv"
        )
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

    from training.datasets.inspection import LEAK, MIN_SIDE, scored_sides

    for side, images in scored_sides(splits).items():
        sizes = images.class_sizes
        yield (
            f"{side}: {len(images):,} images of {images.num_classes:,} "
            f"classes, {sizes.min()} to {sizes.max()} a class (median "
            f"{np.median(sizes):g})"
        )
        alone = [images.class_names[i] for i in np.flatnonzero(sizes == 1)]
        what = "class(es) with one image, which is never a positive"
        yield from _listed(alone, what)
    unreadable = [f"{name}: {why}" for name, why in found.unreadable.items()]
    yield from _listed(unreadable, "unreadable image(s)")
    small = f"image(s) of fewer than {MIN_SIDE} pixels a side"
    yield from _listed(found.tiny, small)
    yield from _listed(found.blank, "blank image(s)")
    # Leaks are last, beside the verdict.
    copies = sorted(found.copies.items(), key=lambda item: item[0][1] == LEAK)
    for (kind, where), pairs in copies:
        what = f"pair(s) of {kind} images {where}"
        yield from _listed([*map(" = ".join, pairs)], what)
    yield "leakage" if found.has_leak else "no leakage"


def _listed(names, what, count=None):
    """Yields how many there are and the first names."""
    count = len(names) if count is None else count
    if count:
        yield f"{count:,} {what}"
    yield from (f"    {name}" for name in names[:LISTED])
    if count > LISTED:
        yield f"    ... and {count - LISTED:,} more"


if __name__ == "__main__":
    main()
