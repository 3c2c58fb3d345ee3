"""Damaged images.

    python -m training.research.campaigns.fuzz

Random bytes, and JPEG, PNG, BMP and WebP files with flipped, missing or joined
bytes, go through `decode_image` and every signature of an export, in requests
with intact images. Intact images must keep their neighbors, each damaged one
gets a status, and the process must survive.
"""

import io
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.research.report import (
    CommandSettings,
    Table,
    facts_table,
    run_measurement,
)

KINDS = "JPEG", "PNG", "BMP", "WEBP"


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Number of images."""

    model: Path = Path("saved_models/glyphs")
    """Exported retriever."""
    images: int = 10_000
    """Damaged images to send."""
    batch: int = 32
    """Images in a request; a quarter of them are intact."""
    seed: int = 0
    """Seed of the damages."""

    SMALL = {"images": 24}


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table; fails where an answer is wrong."""
    from training.browsing.exports import exported_folder

    found = fuzz(exported_folder(settings.model), settings)
    yield facts_table(found)
    if found["wrong_answers"]:
        raise ValueError("Damage changed the answer to an intact image.")


def fuzz(folder: Path, settings: Settings) -> dict[str, Any]:
    """Sends damaged images to an export and returns the facts of the record.

    `wrong_answers` counts intact images whose neighbors changed.
    """
    import keras_gsp as gsp
    from training.browsing.exports import load_export

    model = load_export(folder)
    signatures = model.signatures
    generator = np.random.default_rng(settings.seed)
    whole = whole_images(generator)
    expected = _answer(signatures["search_exact"], whole)
    statuses: dict[str, int] = {}
    sent = wrong = read = 0
    longest = 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while sent < settings.images:
        num_whole = max(1, settings.batch // 4)
        count = min(settings.batch - num_whole, settings.images - sent)
        damaged = [damage(generator, whole) for _ in range(count)]
        chosen = generator.integers(0, len(whole), num_whole)
        contents = damaged + [whole[i] for i in chosen]
        order = generator.permutation(len(contents))
        start = time.monotonic()
        found = _answer(
            signatures["search_exact"], [contents[i] for i in order]
        )
        longest = max(longest, time.monotonic() - start)
        places = np.argsort(order)
        for place, which in zip(places[count:], chosen, strict=True):
            wrong += found["ids"][place] != expected["ids"][which]
        for place in places[:count]:
            status = found["status"][place].split(":")[0]
            statuses[status] = statuses.get(status, 0) + 1
        _check_others(signatures, contents, order)
        for content in damaged:
            try:
                gsp.data.decode_image(content, max_pixels=1_000_000)
                read += 1
            except ValueError:
                pass
        sent += count
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "damaged_images": sent,
        "wrong_answers": int(wrong),
        "statuses": statuses,
        "decoded_by_reading": read,
        "longest_request_s": round(longest, 3),
        "memory_growth_mb": round((after - before) / 1024, 1),
    }


def damage(generator: np.random.Generator, whole: list[bytes]) -> bytes:
    """A damaged image: flipped, cut, joined, enlarged or random bytes."""
    content = bytearray(whole[generator.integers(len(whole))])
    way = generator.integers(6)
    if way == 0:
        return generator.bytes(int(generator.integers(0, 2000)))
    if way == 1:
        return bytes(content[: generator.integers(len(content))])
    if way == 2:
        other = whole[generator.integers(len(whole))]
        place = generator.integers(min(len(content), len(other)))
        return bytes(content[:place]) + other[place:]
    # Headers are hit as often as pixels: that is where decoders break.
    reach = 64 if way == 3 else len(content)
    for _ in range(int(generator.integers(1, 10))):
        content[generator.integers(min(reach, len(content)))] = (
            generator.integers(256)
        )
    return bytes(content)


def whole_images(generator: np.random.Generator) -> list[bytes]:
    """Twenty small images in four formats, half of them with Exif."""
    from PIL import Image

    images = []
    for number in range(20):
        colors = generator.integers(0, 256, (6, 6 + number % 3, 3))
        pixels = np.kron(colors, np.ones((8, 8, 1))).astype("uint8")
        file = io.BytesIO()
        kind, options = KINDS[number % len(KINDS)], {}
        if number % 2 and kind != "BMP":
            options["exif"] = Image.Exif()
            options["exif"][0x0112] = 1 + number % 8
        Image.fromarray(pixels).save(file, kind, **options)
        images.append(file.getvalue())
    return images


def _answer(signature, contents):
    import tensorflow as tf

    answer = signature(image_bytes=tf.constant(contents))
    return {
        "ids": [[id_.decode() for id_ in row] for row in answer["ids"].numpy()],
        "status": [status.decode() for status in answer["status"].numpy()],
    }


def _check_others(signatures, contents, order):
    """The other signatures must answer too."""
    import tensorflow as tf

    asked = tf.constant([contents[i] for i in order])
    signatures["embed"](image_bytes=asked)
    if "explain" in signatures:
        signatures["explain"](query_bytes=asked, neighbor_bytes=asked[::-1])


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
