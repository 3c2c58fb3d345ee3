"""Examines a data set: `python -m training.doctor --data-dir images.zip`.

Lists images that cannot be read or are too small, copies, and class sizes.
Exits with 1 if an image, or nearly the same one, is in two splits: the scores
of unseen classes would then be wrong.

With `--review review.html` and an encoder (or embeddings), it also looks for
wrong labels, near duplicates, outliers and classes that are one, and writes a
page on which to decide. The page saves `decisions.csv` for `--decisions`.
"""

import os
import shlex
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from training.recipes.recipe import OWN_SPLITS
from training.recipes.settings import Dataset, check_fields, positive
from training.runs.command_line import check_new, run_command
from training.runs.run_directory import write_json

LISTED = 5
MIN_SIDE = 32

# Where generalized sum pooling pays, by docs/results/gsp_pays.md.
AMONG_CLUTTER = (
    "If the subject covers a quarter of the images or less, add --pooling "
    "gsp-affine --transport-ratio 0.1 --inverse-temperature 80"
)


@dataclass(frozen=True)
class DoctorCommand:
    """Examines a data set before training."""

    data_dir: str
    """Folder or archive of images, with one folder per class; for another
    data set, as `--data-dir` of training.train."""
    dataset: Dataset = "folder"
    """Layout of the data set."""
    train_classes: Annotated[int | None, positive] = None
    """Classes to train with; by default half of them. For folders and lists
    of your own."""
    min_side: Annotated[int | None, positive] = None
    """Images with a shorter side of fewer pixels are too small; by default
    32, or what `encoder` expects."""
    encoder: Path | None = None
    """Run directory or .keras file of an encoder that the images are for."""
    embeddings: Path | None = None
    """Embeddings of the images that training.embed wrote, in place of an
    encoder; for `review`."""
    review: Path | None = None
    """New HTML file on which to decide about suspicious images, found by
    their embeddings; for folders and lists of your own."""
    decisions: Path | None = None
    """Decisions that the page saved: images to drop, labels to change."""
    json: Path | None = None
    """New JSON file for all findings."""

    def __post_init__(self) -> None:
        check_fields(self)
        is_own = self.dataset in OWN_SPLITS
        for name in ("review", "decisions"):
            if not is_own and getattr(self, name) is not None:
                raise ValueError(
                    f"`{name}` must be None except for dataset=folder and "
                    f"csv. Received: dataset={self.dataset}."
                )
        has_source = (self.encoder, self.embeddings) != (None, None)
        if self.review is not None and not has_source:
            raise ValueError(
                "`review` needs an encoder: --encoder runs/NAME, --encoder "
                "FILE.keras, or --embeddings of training.embed. Received: "
                "neither."
            )
        if self.embeddings is not None and self.review is None:
            raise ValueError(
                "`embeddings` needs a page to write: --review review.html. "
                "Received: review=None."
            )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    if run_command("doctor", __doc__, DoctorCommand, _examine, arguments):
        sys.exit(1)


def _examine(command):
    from tqdm import tqdm

    from training.datasets.inspection import inspect
    from training.datasets.reading import READERS

    check_new(command, "json", "review")
    if command.dataset not in READERS:
        raise ValueError(
            f"`dataset` must be one of {', '.join(READERS)}, which are read "
            f"from a disk. Received: dataset={command.dataset}."
        )
    limits = _limits(command)
    own: dict[str, Any] = {
        "num_train_classes": command.train_classes,
        "decisions": command.decisions,
    }
    own = {name: value for name, value in own.items() if value is not None}
    splits = READERS[command.dataset](command.data_dir, **own)
    progress = partial(tqdm, desc="Looking at images")
    found = inspect(splits, progress=progress, **limits)
    lines = list(_report(found, limits["min_side"]))
    print(*lines, sep="\n")
    facts = asdict(found) | {"has_leak": found.has_leak}
    if command.review is not None:
        facts["suspects"] = _review(command, lines)
    if command.json is not None:
        write_json(command.json, facts)
    print(f"Next: {_next(command, found)}")
    return found.has_leak


def _review(command, lines):
    """Writes the page to decide on; prints and returns what was found."""
    import keras_gsp as gsp
    from training.datasets.layout import images_root
    from training.reports.review import Review

    own = {"decisions": command.decisions}
    if command.dataset == "csv":
        images = gsp.data.csv_list(command.data_dir, on_missing="skip", **own)
    else:
        images = gsp.data.image_folder(command.data_dir, **own)
    root = images_root(command.data_dir)
    places, embeddings = _embeddings(command, images, root)
    images = images.subset(places)
    found = gsp.retrieval.suspects(embeddings, images.names)
    review = Review(images, embeddings, found, root)
    review.write(command.review, Path(command.data_dir).name, lines)
    listed = review.listed()
    for kind, found_names in listed.items():
        what = f"of {kind.replace('_', ' ')}, suspected"
        for line in _listed(found_names, what):
            print(line)
    print(f"{command.review}: written; open it and decide")
    return listed


def _embeddings(command, images, root):
    """Positions of the images that can be read, and their embeddings."""
    import numpy as np

    import keras_gsp as gsp
    from keras_gsp.data.image_folder import names_below
    from keras_gsp.embeddings.labeled_batches import encoded
    from training.embedding.collection import read_embeddings
    from training.runs.scoring import load_encoder, load_preprocessing

    if command.embeddings is None:
        usable = gsp.data.readable_images(images.paths, on_error="skip").indices
        some = images.subset(usable)
        batches = gsp.data.evaluation_batches(
            some.paths,
            some.labels,
            preprocessing=load_preprocessing(command.encoder),
        )
        return usable, encoded(load_encoder(command.encoder), batches)[0]
    shards = list(read_embeddings(command.embeddings))
    rows = np.concatenate([rows for rows, _, _ in shards])
    ids = [os.path.normpath(one) for _, _, ids in shards for one in ids]
    found = dict(zip(ids, rows, strict=True))
    names = names_below(images.paths, root)
    usable = [place for place, name in enumerate(names) if name in found]
    if not usable:
        raise ValueError(
            "`embeddings` must be those of the images of `data_dir`. Received: "
            f"{command.embeddings}, with ids such as {ids[0]}; the images are "
            f"named {names[0]}."
        )
    return usable, np.stack([found[names[place]] for place in usable])


def _limits(command):
    """Returns the sizes that images must have, by name."""
    import keras_gsp as gsp
    from training.runs.scoring import load_preprocessing

    if command.encoder is None:
        return {
            "min_side": command.min_side or MIN_SIDE,
            "max_pixels": gsp.data.Preprocessing().max_pixels,
        }
    expected = load_preprocessing(command.encoder)
    if expected is None:
        raise ValueError(
            "`encoder` must know how its images are prepared, by "
            "`build_encoder(..., preprocessing=...)`. Received: "
            f"{command.encoder}, which does not."
        )
    side = int(expected.resize or min(expected.height, expected.width))
    if command.min_side not in (None, side):
        raise ValueError(
            "`min_side` must be left out with an encoder. Received: "
            f"min_side={command.min_side}, {command.encoder} with {expected}."
        )
    return {"min_side": side, "max_pixels": expected.max_pixels}


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
        "--train-classes": command.train_classes,
        "--corrupt-images": "skip" if found.unreadable else None,
    }
    words = ["python", "-m", "training.train", command.dataset]
    for option, value in given.items():
        if value is not None:
            words += [option, str(value)]
    return f"{shlex.join(words)}\n{AMONG_CLUTTER}"


def _report(found, min_side):
    """Yields the lines that are printed, and shown on the page."""
    for split, facts in found.splits.items():
        yield (
            f"{split}: {facts['num_images']:,} images of "
            f"{facts['num_classes']:,} classes, {facts['smallest']} to "
            f"{facts['largest']} a class (median {facts['median']:g})"
        )
        what = "class(es) with one image, which is never a positive"
        yield from _listed(facts["classes_with_one_image"], what)
    unreadable = [f"{name}: {why}" for name, why in found.unreadable.items()]
    yield from _listed(unreadable, "unreadable image(s)")
    small = f"image(s) of fewer than {min_side} pixels a side"
    yield from _listed(found.tiny, small)
    yield from _listed(found.blank, "blank image(s)")
    for kind, words in (("exact", "identical"), ("near", "nearly identical")):
        for place, where in (
            ("in_a_class", "in one class"),
            ("in_two_classes", "in two classes of one split"),
            ("leaks", "across the class split: LEAKAGE"),
        ):
            pairs = map(" = ".join, getattr(found, f"{kind}_{place}"))
            what = f"pair(s) of {words} images {where}"
            yield from _listed([*pairs], what)
    yield "leakage" if found.has_leak else "no leakage"


def _listed(names, what):
    if not names:
        return
    yield f"{len(names):,} {what}"
    yield from (f"    {name}" for name in names[:LISTED])
    if len(names) > LISTED:
        yield f"    ... and {len(names) - LISTED:,} more"


if __name__ == "__main__":
    main()
