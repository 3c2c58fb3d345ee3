"""Finds the files that cannot be used before training starts on them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from keras_gsp.data.decoding import (
    MAX_PIXELS,
    check_num_pixels,
    decode_image,
    first_words,
    image_size,
)

_NAMED = 10


class ReadableImages(NamedTuple):
    """What `readable_images` found.

    Args:
        indices: Positions of the usable files, ascending.
        skipped: File name -> reason, for the files left out.
    """

    indices: list[int]
    skipped: dict[str, str]


def readable_images(
    paths: Sequence[str | Path],
    *,
    on_error: str = "raise",
    min_side: int = 1,
    max_pixels: int = MAX_PIXELS,
) -> ReadableImages:
    """Decodes every file once and says which cannot be used.

    Run it when a data set is indexed: one unreadable file among 60,000 is
    then named at once instead of ending a run hours later.

    Args:
        paths: File names, sequence of str.
        on_error: `"raise"`: one error that names the unusable files;
            `"skip"`: leave them out and report them.
        min_side: Least length of the shorter side, in pixels. 1 accepts
            every size: the pipeline enlarges small images to the crop's
            size, as the published protocol does.
        max_pixels: Pixels above which a file counts as unusable; it is not
            decoded. Default 50 million.

    Returns:
        `ReadableImages(indices, skipped)`.

    Raises:
        ValueError: unusable files, with `on_error="raise"`; or none is left.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(
            '`on_error` must be "raise" or "skip". Received: '
            f"on_error={on_error!r}."
        )
    names = [str(path) for path in paths]
    with ThreadPoolExecutor() as threads:
        reasons = list(
            threads.map(lambda p: _reason(p, min_side, max_pixels), names)
        )
    skipped = {p: r for p, r in zip(names, reasons, strict=True) if r}
    indices = [i for i, reason in enumerate(reasons) if not reason]
    if skipped and (on_error == "raise" or not indices):
        raise ValueError(_message(skipped, len(names)))
    return ReadableImages(indices, skipped)


def _reason(path, min_side, max_pixels):
    import tensorflow as tf

    try:
        contents = tf.io.read_file(path).numpy()
        if not contents:
            raise ValueError("empty file")
        height, width = image_size(contents)
        check_num_pixels(height, width, max_pixels)
        _decode(contents)
    except (tf.errors.OpError, ValueError) as error:
        return f"cannot be read ({first_words(error)})"
    if min(height, width) < min_side:
        return f"{width} x {height} pixels, smaller than {min_side}"
    return None


def _decode(contents):
    import tensorflow as tf

    if tf.image.is_jpeg(contents):
        # 1/8 of the size: all bytes are read, few pixels are made.
        tf.io.decode_jpeg(contents, channels=3, ratio=8)
    else:
        decode_image(contents, max_pixels=2**63)


def _message(skipped, total):
    named = [f"{p}: {r}" for p, r in list(skipped.items())[:_NAMED]]
    more = len(skipped) - len(named)
    if more:
        named.append(f"... and {more} more")
    return (
        f"All images must be readable. Received: {len(skipped)} unusable of "
        f"{total}:\n  " + "\n  ".join(named) + "\nRemove them, or skip them "
        'with `on_error="skip"`.'
    )
