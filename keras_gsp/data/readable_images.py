"""Finds unreadable image files before training."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from keras_gsp._checks import check_choice
from keras_gsp.data.decoding import MAX_PIXELS, check_image


class ReadableImages(NamedTuple):
    """Positions of the usable files, and the reason by name of each other."""

    indices: list[int]
    skipped: dict[str, str]


def readable_images(
    paths: Sequence[str | Path],
    *,
    on_error: str = "raise",
    max_pixels: int = MAX_PIXELS,
) -> ReadableImages:
    """Decodes every file once and finds those that cannot be used.

    With `on_error="raise"` they are one `ValueError` that names them; with
    `"skip"` they are left out and returned, and only no usable file at all is
    an error. Files of more than `max_pixels` are unusable and not decoded.
    """
    check_choice("raise", "skip", on_error=on_error)
    names = [str(path) for path in paths]
    with ThreadPoolExecutor() as threads:
        reasons = list(threads.map(lambda p: _reason(p, max_pixels), names))
    skipped = {p: r for p, r in zip(names, reasons, strict=True) if r}
    indices = [i for i, reason in enumerate(reasons) if not reason]
    if skipped and (on_error == "raise" or not indices):
        named = [f"{path}: {reason}" for path, reason in skipped.items()]
        if len(named) > 10:
            named[10:] = [f"... and {len(named) - 10} more"]
        raise ValueError(
            f"All images must be readable. Received: {len(skipped)} unusable "
            f"of {len(names)}:\n  " + "\n  ".join(named) + "\nRemove them, "
            'or skip them with `on_error="skip"`.'
        )
    return ReadableImages(indices, skipped)


def _reason(path, max_pixels):
    try:
        check_image(Path(path).read_bytes(), max_pixels)
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"
    return None
