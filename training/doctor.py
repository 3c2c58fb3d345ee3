"""Examines a data set: `python -m training.doctor --data-dir images.zip`.

Exits with 1 if an image, or nearly the same one, is on two sides of the class
split: the scores of unseen classes would then be wrong.
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.recipes.settings import Dataset, check_fields, positive
from training.runs.run_directory import write_json

LISTED = 5


@dataclass(frozen=True)
class DoctorCommand:
    """Examines a data set before training."""

    data_dir: str
    """Folder or archive of images, one folder per class; of another data set
    what `--data-dir` of training.train names."""
    dataset: Dataset = "folder"
    """Layout of the data set."""
    train_classes: Annotated[int | None, positive] = None
    """Classes to train with; by default half of them. Folders and lists of
    one's own only."""
    classes_per_batch: Annotated[int, positive] = 16
    """Classes in a batch, as the training command has them."""
    samples_per_class: Annotated[int, positive] = 4
    """Images of a class in a batch."""
    min_side: Annotated[int, positive] = 32
    """Images with a shorter side of fewer pixels are called tiny."""
    json: Path | None = None
    """File for everything that was found, which must be new."""

    def __post_init__(self) -> None:
        check_fields(self)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        command = tyro.cli(
            DoctorCommand,
            prog="python -m training.doctor",
            description=__doc__,
            args=arguments,
        )
        has_leak = _examine(command)
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        sys.exit(f"error: {error}")
    if has_leak:
        sys.exit(1)


def _examine(command):
    from tqdm import tqdm

    from training.datasets.inspection import inspect, sampling_facts
    from training.datasets.reading import READERS

    if command.json is not None and command.json.exists():
        raise FileExistsError(f"`json` must be new. Received: {command.json}.")
    own = {}
    if command.train_classes is not None:
        own["num_train_classes"] = command.train_classes
    if command.dataset not in READERS:
        raise ValueError(
            f"`dataset` must be one of {', '.join(READERS)}, which are read "
            f"from a disk. Received: dataset={command.dataset}."
        )
    splits = READERS[command.dataset](command.data_dir, **own)
    found = inspect(
        splits,
        min_side=command.min_side,
        progress=lambda images: tqdm(images, desc="Looking at images"),
    )
    sampling = sampling_facts(
        splits.train, command.classes_per_batch, command.samples_per_class
    )
    for line in _report(found, sampling, command):
        print(line)
    if command.json is not None:
        facts = asdict(found) | {"sampling": sampling}
        write_json(command.json, facts | {"has_leak": found.has_leak})
    return found.has_leak


def _report(found, sampling, command):
    """Yields the lines that are printed."""
    for side, facts in found.sides.items():
        yield (
            f"{side}: {facts['num_images']:,} images of "
            f"{facts['num_classes']:,} classes, {facts['smallest']} to "
            f"{facts['largest']} a class (median {facts['median']:g})"
        )
        singles = facts["classes_with_one_image"]
        yield from _listed(
            singles, "class(es) with one image, which is never a positive"
        )
    yield from _listed(
        [f"{name}: {why}" for name, why in found.unreadable.items()],
        "unreadable image(s)",
    )
    yield from _listed(
        found.tiny, f"image(s) of fewer than {command.min_side} pixels a side"
    )
    yield from _listed(found.blank, "blank image(s)")
    yield from _listed(found.turned, "photograph(s) that EXIF turns")
    for kind in ("exact", "near"):
        words = "identical" if kind == "exact" else "nearly identical"
        for place, where in (
            ("in_a_class", "in one class"),
            ("in_two_classes", "in two classes of one side"),
            ("leaks", "across the class split: LEAKAGE"),
        ):
            pairs = getattr(found, f"{kind}_{place}")
            yield from _listed(
                [f"{one} = {other}" for one, other in pairs],
                f"pair(s) of {words} images {where}",
            )
    yield from _sampling_lines(sampling)
    yield "leakage" if found.has_leak else "no leakage"


def _sampling_lines(sampling):
    wanted = sampling["classes_per_batch"]
    if not sampling["is_possible"]:
        yield (
            f"sampler: a batch of {wanted} classes is impossible; choose a "
            "smaller --classes-per-batch"
        )
        return
    yield (
        f"sampler: every class once in {sampling['steps_per_cycle']:,} "
        f"batches, {sampling['images_per_cycle']:,} images; an image of the "
        f"smallest class comes {sampling['oversampling']:.3g} times as often "
        "as one of the largest"
    )
    repeating = sampling["num_repeating_classes"]
    if repeating:
        yield (
            f"sampler: {repeating:,} class(es) have fewer than "
            f"{sampling['samples_per_class']} images: these come twice in a "
            "batch"
        )


def _listed(names, what):
    if not names:
        return
    yield f"{len(names):,} {what}"
    yield from (f"    {name}" for name in names[:LISTED])
    if len(names) > LISTED:
        yield f"    ... and {len(names) - LISTED:,} more"


if __name__ == "__main__":
    main()
