"""From a data set's word and place to its checked splits."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from keras_gsp.data.archives import cache_folder
from keras_gsp.data.listed_files import unreadable, unreadable_text
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


def readable_splits(
    splits: RetrievalSplits, on_corrupt: str = "raise"
) -> RetrievalSplits:
    """Decodes every file once: raises for unusable ones, or leaves them out."""
    parts: dict[str, Any] = splits.sides()
    parts = {side: part for side, part in parts.items() if part.paths}
    # Queries and gallery are test images too.
    paths = list(dict.fromkeys(p for one in parts.values() for p in one.paths))
    passed = cache_folder() / "readable" / files_digest(paths)
    if not paths or passed.exists():
        return splits
    skipped = unreadable(paths)
    if skipped and (on_corrupt == "raise" or len(skipped) == len(paths)):
        raise ValueError(
            "All images must be readable. Received: "
            f"{unreadable_text(skipped, len(paths))}\nRemove them, or skip "
            "them with --corrupt-images skip."
        )
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
