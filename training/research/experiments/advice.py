r"""How often is `training.advise` right, and how much time does it save?

    python -m training.research.experiments.advice --data-dirs birds50.zip emoji.zip \
        --collages emoji.zip \
        --backbones mobilenet-v2@0.35=mobilenet_v2_035.weights.h5

The advice of a few minutes on each set of images, beside every step trained with
nothing stopped (800 steps for heads, 500 for LoRA and fine-tuning), on the same
folds of classes. The advice is right if the step that it names has then at most
one point of MAP@R less than the best one (lost, paired, with 95 % interval).
Glyphs are canvases of letters among symbols, and collages of emoji among other
emoji, written to folders as a user has them.
"""

import sys
import tempfile
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from training.advise import (
    TOO_LOW,
    AdviseCommand,
    interval_text,
    verdict,
)
from training.datasets import glyphs
from training.datasets.collage import collage_splits
from training.pictures.palette import BLUE, picture
from training.research.report import (
    ExperimentSettings,
    Table,
    run_measurement,
)
from training.runs.trial import Trial


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Images, networks, and the length of both trainings."""

    data_dirs: tuple[Path, ...] = ()
    """Folders or archives of images."""
    backbones: tuple[str, ...]
    """As for training.advise."""
    collages: tuple[Path, ...] = ()
    """Folders whose images fill a quarter of a canvas among others."""
    glyph_classes: int = 60
    """Classes of `glyphs` to write; 0: none."""
    crop_size: int = 96
    """Side of the images."""
    minutes: float = 8.0
    """Time of the advice."""
    steps: tuple[int, int] = (400, 150)
    """Steps of heads, and of LoRA and fine-tuning, for the advice."""
    full_steps: tuple[int, int] = (800, 500)
    """The same, to the end."""
    folder: Path | None = None
    """Folder of the runs, kept; a temporary one by default."""

    SMALL = {
        "steps": (2, 2),
        "full_steps": (4, 4),
        "glyph_classes": 0,
        "minutes": 0.1,
    }


def measure(settings: Settings) -> list[dict[str, Any]]:
    """Returns one row for each set of images."""
    with tempfile.TemporaryDirectory() as aside:
        folder = settings.folder or Path(aside)
        sources = list(settings.data_dirs)
        for source in settings.collages:
            images = collage_splits(source, canvas_size=settings.crop_size).test
            sources.append(_written(images, folder / f"{source.stem} collages"))
        if count := settings.glyph_classes:
            letters = glyphs.load().test.of_classes(range(count))
            sources.append(_written(letters, folder / "glyphs"))
        return [_row(settings, source, folder) for source in sources]


def _row(settings, source, folder):
    command = AdviseCommand(
        data_dir=str(source),
        backbones=settings.backbones,
        crop_size=settings.crop_size,
    )

    def tried(name, minutes, worth, steps, longest=inf):
        trial = Trial(
            command.features(),
            folder / f"{source.stem}-{name}",
            minutes=minutes,
            worth=worth,
            head_steps=steps[0],
            tuning_steps=steps[1],
            longest=longest,
        )
        trial.run()
        return trial

    advice = tried("advice", settings.minutes, command.worth, settings.steps)
    full = tried("full", inf, -inf, settings.full_steps, settings.full_steps[1])
    ends = {step.name: step.map_at_r for step in full.steps}
    chosen, best = advice.best.name, max(ends, key=ends.__getitem__)
    steps = {step.name: step for step in full.steps}
    return {
        "data": source.stem,
        "sentence": verdict(advice.steps, advice.best, advice.skipped),
        "advised": chosen,
        "best": best,
        "ends": ends,
        "lost": steps[best].gain(steps[chosen]),
        "is_right": ends[best] - ends[chosen] <= command.worth,
        "is_undecided": max(step.map_at_r for step in advice.steps) < TOO_LOW,
        "minutes": sum(step.minutes for step in advice.steps),
        "full_minutes": sum(step.minutes for step in full.steps),
    }


def _written(images, folder):
    """Writes images to one folder for each class, unless they are there."""
    from PIL import Image

    for row, label in enumerate(images.labels):
        file = folder / f"class {label:03}" / f"{row}.png"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images.images[row]).save(file)
    return folder


def tables(results: list[dict]) -> list[Table]:
    """One row for each set of images, then what was said."""
    names = list(dict.fromkeys(name for row in results for name in row["ends"]))
    headings = ["data", "advised", *names]
    headings += ["lost", "right", "minutes", "minutes of everything"]
    rows = [
        [
            row["data"],
            "" if row["is_undecided"] else row["advised"],
            *(f"{row['ends'][name]:.1f}" for name in names),
            interval_text(row["lost"])
            if row["best"] != row["advised"]
            else "0",
            _judged(row),
            f"{row['minutes']:.1f}",
            f"{row['full_minutes']:.1f}",
        ]
        for row in results
    ]
    said = [[row["data"], row["sentence"]] for row in results]
    return [Table(headings, rows, 2), Table(["data", "advice"], said, 2)]


def _judged(row):
    if row["is_undecided"]:
        return "undecided"
    return "yes" if row["is_right"] else "no"


def draw(path: Path, results: list[dict]) -> None:
    """MAP@R of each step in full; the advised one is filled."""
    size = (3.4 * len(results), 3.6)
    with picture(path, 1, len(results), figsize=size, sharey=True) as axes:
        for axis, row in zip(axes[0], results, strict=True):
            for name, score in row["ends"].items():
                is_advised = name == row["advised"] and not row["is_undecided"]
                color = BLUE if is_advised else "white"
                axis.barh(name, score, color=color, edgecolor=BLUE)
            axis.set_title(row["data"])
            axis.set_xlabel("MAP@R, %")
        axes[0, 0].invert_yaxis()  # of all: they share it


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
