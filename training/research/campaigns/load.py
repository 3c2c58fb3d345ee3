"""Many clients at once.

    python -m training.research.campaigns.load

Threads send requests to one export. Each request asks for the neighbors of one
image; some images are damaged. Every answer is compared with that of a single
thread. Meanwhile the export is loaded again, `--reloads` times, and replaces the
one that is served. Latencies are those of a loaded machine.
"""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from training.research.report import (
    CommandSettings,
    Table,
    facts_table,
    run_measurement,
)


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Number of requests and clients."""

    model: Path = Path("saved_models/glyphs")
    """Exported retriever."""
    requests: int = 10_000
    """Requests of one image each."""
    threads: int = 16
    """Concurrent clients."""
    bad: float = 0.05
    """Share of the requests whose image is damaged."""
    reloads: int = 20
    """Loads of the export while it is served."""
    signatures: tuple[Literal["search_exact", "search_ann"], ...] = (
        "search_exact",
    )
    """Exact search, ScaNN's, or one after the other."""
    seed: int = 0
    """Seed of the requests' order."""

    SMALL = {"requests": 20, "threads": 2, "reloads": 2}


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each signature; fails where answers differ."""
    from training.browsing.exports import exported_folder

    folder = exported_folder(settings.model)
    for signature in settings.signatures:
        found = load(folder, settings, signature)
        yield facts_table(found, signature)
        if found["different_answers"]:
            raise ValueError("Answers differ from the single-threaded ones.")


def load(folder: Path, settings: Settings, signature: str) -> dict:
    """Sends requests to an export from many threads.

    A client loads the export again at equal distances; the others go on with
    the earlier one until it is loaded. Returns the facts of the record.
    """
    import tensorflow as tf

    from training.browsing.exports import load_export
    from training.research.campaigns.fuzz import damage, whole_images

    model = load_export(folder)
    if signature not in model.signatures:
        raise ValueError(
            f"`signatures` must be ones of {str(folder)!r}, which has "
            f"{', '.join(sorted(model.signatures))}. Received: {signature}."
        )
    # Signatures live only as long as their model.
    served = {"model": model}

    def answer_to(content):
        search = served["model"].signatures[signature]
        found = search(image_bytes=content).items()
        return {name: np.array(value).tolist() for name, value in found}

    generator = np.random.default_rng(settings.seed)
    whole = whole_images(generator)
    damaged = [damage(generator, whole) for _ in whole]
    contents = [tf.constant(content) for content in whole + damaged]
    expected = [answer_to(content) for content in contents]
    requests, reloads = settings.requests, settings.reloads
    is_bad = generator.random(requests) < settings.bad
    chosen = generator.integers(0, len(whole), requests) + is_bad * len(whole)
    loaded_at = np.linspace(0, requests, reloads + 2, dtype=int)[1:-1]

    def ask(number):
        if number in loaded_at:
            model = load_export(folder)
            # TensorFlow never frees what it made for a first call. Of several
            # threads that call at once, each is a first.
            model.signatures[signature](image_bytes=contents[0])
            served["model"] = model
        which = chosen[number]
        start = time.monotonic()
        answer = answer_to(contents[which])
        return time.monotonic() - start, answer != expected[which]

    told: list[tuple[float, bool]] = []
    memory = []
    with ThreadPoolExecutor(settings.threads) as pool:
        start = time.monotonic()
        for part in np.array_split(np.arange(requests), 10):
            told += pool.map(ask, part)
            memory.append(_resident_mb())
        seconds = time.monotonic() - start
    return {
        "requests": requests,
        "bad_images": int(is_bad.sum()),
        "reloads": reloads,
        "different_answers": int(sum(differs for _, differs in told)),
        "requests_per_s": round(requests / seconds, 1),
        **_facts(np.array([latency for latency, _ in told]) * 1000, memory),
    }


def _facts(milliseconds, memory):
    """Latencies, and the memory after each tenth of the requests."""
    return {
        f"latency_p{p}_ms": round(float(np.percentile(milliseconds, p)), 2)
        for p in (50, 90, 99)
    } | {
        "memory_mb_after_each_tenth": ", ".join(f"{mb:.0f}" for mb in memory),
        "memory_growth_mb_of_second_half": round(memory[-1] - memory[4], 1),
    }


def _resident_mb():
    """Memory held now, by Linux's own account; 0 elsewhere."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return 0.0
    pages = int(status.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
