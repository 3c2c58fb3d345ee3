"""The last few checkpoints of one run, and which of them can be used."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_gsp.callbacks.exact_resume.checkpoint_file import (
    read_checkpoint,
    write_checkpoint,
)


def save_checkpoint(
    folder: str | os.PathLike,
    step: int,
    manifest: dict[str, Any],
    arrays: dict[str, Any],
    *,
    keep: int,
) -> None:
    """Writes the checkpoint of a step and removes those that are too old.

    Args:
        folder: of the checkpoints of one run; made when missing.
        step: steps done, at least 0.
        manifest: anything JSON can hold.
        arrays: NumPy arrays by name.
        keep: number of checkpoints to keep, this one included.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / f"step-{step:09d}.npz", manifest, arrays)
    # One of a later step was refused when this run began: not counted.
    done = [path for path in _paths(folder) if _step(path) <= step]
    for path in [*done[:-keep], *folder.glob("*.partial")]:
        path.unlink()


def newest_checkpoint(
    folder: str | os.PathLike, check: Callable[[dict, dict], None]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns the newest checkpoint that can be read and passes a check.

    Those refused before it are named in warnings and left as they are.

    Args:
        folder: of the checkpoints of one run.
        check: called with manifest and arrays; raises `ValueError` with the
            reason when they do not fit.

    Returns:
        Manifest and arrays, or `None` when the folder holds no checkpoint.

    Raises:
        ValueError: there are checkpoints, but none can be used.
    """
    refused = []
    for path in reversed(_paths(Path(folder))):
        try:
            manifest, arrays = read_checkpoint(path)
            check(manifest, arrays)
        except ValueError as error:
            refused.append(f"{path.name}: {error}")
            continue
        for reason in refused:
            warnings.warn(f"Refused a checkpoint, {reason}", stacklevel=3)
        return manifest, arrays
    if refused:
        raise ValueError(
            f"None of the checkpoints in `{folder}` can be resumed from; they "
            "are left as they are. Use the settings and the model they were "
            "made with, or another directory to start anew. "
            + " ".join(refused)
        )
    return None


def _paths(folder):
    """Checkpoints, oldest first."""
    return sorted(folder.glob("step-*.npz"), key=_step)


def _step(path):
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isdigit() else -1
