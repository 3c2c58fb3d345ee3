"""Pictures of experiments, drawn from the records that pages are made of."""

import importlib
import json
from pathlib import Path
from typing import Any


def pictures_of(name: str, folder: Path) -> list[Path]:
    """The picture files of a record: NAME.png, then NAME_PART.png.

    Args:
        name: The record's.
        folder: Holds records and pictures.
    """
    longer = [one.stem for one in folder.glob(f"{name}_*.json")]
    parts = [
        one
        for one in sorted(folder.glob(f"{name}_*.png"))
        if not any(
            one.stem == other or one.stem.startswith(f"{other}_")
            for other in longer
        )
    ]
    whole = folder / f"{name}.png"
    return [whole, *parts] if whole.exists() else parts


def draw_pictures(name: str, record: dict[str, Any], folder: Path) -> None:
    """Draws what an experiment shows of its results.

    Args:
        name: The record's; the first file is `NAME.png`.
        record: Of an experiment.
        folder: Where the files go.
    """
    module = importlib.import_module(
        f"training.research.experiments.{record['experiment']}"
    )
    module.draw(folder / f"{name}.png", record["results"])


def draw_missing(folder: Path) -> list[Path]:
    """Draws the pictures of all experiments of a folder that have none.

    A picture's bytes depend on the version of the drawing library, so that
    what is there is left; whoever writes a record draws it anew.

    Returns:
        The files that are new.
    """
    drawn = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["kind"] != "experiment":
            continue
        if not (folder / f"{path.stem}.png").exists():
            draw_pictures(path.stem, record, folder)
            drawn += pictures_of(path.stem, folder)
    return drawn
