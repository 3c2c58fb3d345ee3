"""From a data set's word and place to its checked splits."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras_gsp as gsp
from keras_gsp.data.archives import cache_folder
from training.datasets.collage import collage_splits
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import files_digest
from training.datasets.own_images import csv_splits, folder_splits
from training.datasets.published import PUBLISHED, published_splits

READERS: dict[str, Callable[..., RetrievalSplits]] = {
    **{name: partial(published_splits, name) for name in PUBLISHED},
    "collage": collage_splits,
    "csv": csv_splits,
    "folder": folder_splits,
}


def read_splits(
    dataset: str,
    data_dir: str | Path | None,
    *,
    source: str = "disk",
    on_corrupt: str = "raise",
    check: Callable[[RetrievalSplits], Any] | None = None,
    **settings: Any,
) -> RetrievalSplits:
    """Reads a data set and decodes every file of it once.

    `source` is `"disk"`, the original layout, or `"tfds"`, prepared by
    TensorFlow Datasets. Unusable files raise one error that names all, or are
    skipped with a warning (`on_corrupt`); so are files that a list names and
    that are missing. `check` is called with the splits before files are
    decoded where possible; `settings` go to the data set's reader.
    """
    if source == "disk":
        if dataset == "csv":
            settings["on_missing"] = on_corrupt
        splits = READERS[dataset](data_dir, **settings)
    else:
        from training.datasets.tfds_source import tfds_splits

        splits = tfds_splits(dataset, data_dir, **settings)
    if check is not None:
        check(splits)
    return readable_splits(splits, on_corrupt)


def readable_splits(
    splits: RetrievalSplits, on_corrupt: str = "raise"
) -> RetrievalSplits:
    """Checks every file of the splits with `gsp.data.readable_images`."""
    parts: dict[str, Any] = splits.sides()
    parts = {side: part for side, part in parts.items() if part.paths}
    # Queries and gallery are test images too.
    paths = list(dict.fromkeys(p for one in parts.values() for p in one.paths))
    # Decoding 60,000 files takes a minute: remember the sets that passed.
    passed = cache_folder() / "readable" / files_digest(paths)
    if not paths or passed.exists():
        return splits
    try:
        skipped = gsp.data.readable_images(paths, on_error=on_corrupt).skipped
    except ValueError as error:
        # The option of the commands in place of the function's argument.
        advice = str(error).replace(
            '`on_error="skip"`', "--corrupt-images skip"
        )
        raise ValueError(advice) from error
    if not skipped:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
        return splits
    warnings.warn(
        f"{len(skipped)} unusable images of {splits.name} are left out, "
        f"first: {next(iter(skipped))}.",
        stacklevel=3,
    )
    for side, part in parts.items():
        kept = [i for i, p in enumerate(part.paths) if p not in skipped]
        if not kept:
            raise ValueError(
                f"{splits.name} must have a readable {side} image. Received: "
                f"{len(part)} unusable ones."
            )
        parts[side] = part.subset(kept)
    return replace(splits, **parts)
