"""Sends requests to one export from many threads.

    python -m training.research.campaigns.load

Each request asks for the neighbors of one image; some images are damaged.
Every answer is compared with that of a single thread. Meanwhile the export is
loaded again, `--reloads` times, and replaces the one that is served. Latencies
are those of a loaded machine.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from training.research.report import (
    CommandSettings,
    facts_table,
    run_benchmark,
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

    def small(self) -> "Settings":
        """A few requests."""
        return replace(self, requests=20, threads=2, reloads=2)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    settings = tyro.cli(
        Settings,
        prog="python -m training.research.campaigns.load",
        description=__doc__,
        args=arguments,
    )
    from training.browsing.exports import exported_folder

    records: list[dict] = []

    def measure(settings):
        for signature in settings.signatures:
            record = load(
                exported_folder(settings.model),
                settings.requests,
                threads=settings.threads,
                bad=settings.bad,
                reloads=settings.reloads,
                signature=signature,
                seed=settings.seed,
            )
            records.append(record)
            yield facts_table(record, signature)

    try:
        run_benchmark(
            "campaigns.load",
            "Many clients at once",
            __doc__,
            settings,
            measure,
            kind="campaign",
        )
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if any(record["different_answers"] for record in records):
        sys.exit("error: answers differ from the single-threaded ones")


def load(
    folder: Path,
    requests: int,
    *,
    threads: int = 16,
    bad: float = 0.05,
    reloads: int = 0,
    signature: str = "search_exact",
    seed: int = 0,
) -> dict:
    """Sends requests to an export from many threads.

    Args:
        folder: The export.
        requests: Requests of one image each.
        threads: Clients at once.
        bad: Share of requests with a damaged image, in [0, 1].
        reloads: Loads of the export by a client, at equal distances; the
            others go on with the earlier one until it is loaded.
        signature: Which search.
        seed: Seed of the order.

    Returns:
        The record, a dict of JSON values; `different_answers` must be 0.
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
    served = {"search": model.signatures[signature]}
    generator = np.random.default_rng(seed)
    whole = whole_images(generator)
    damaged = [damage(generator, whole) for _ in whole]
    contents = [tf.constant(content) for content in whole + damaged]
    expected = [_plain(served["search"](image_bytes=one)) for one in contents]
    is_bad = generator.random(requests) < bad
    chosen = generator.integers(0, len(whole), requests) + is_bad * len(whole)
    loaded_at = np.linspace(0, requests, reloads + 2, dtype=int)[1:-1]

    def ask(number):
        if number in loaded_at:
            served["search"] = load_export(folder).signatures[signature]
        which = chosen[number]
        start = time.monotonic()
        answer = _plain(served["search"](image_bytes=contents[which]))
        return time.monotonic() - start, answer != expected[which]

    told, memory = [], []
    with ThreadPoolExecutor(threads) as pool:
        start = time.monotonic()
        for part in np.array_split(np.arange(requests), 10):
            told += pool.map(ask, part)
            memory.append(_resident_mb())
        seconds = time.monotonic() - start
    milliseconds = np.array([latency for latency, _ in told]) * 1000
    return {
        "requests": requests,
        "bad_images": int(is_bad.sum()),
        "reloads": len(loaded_at),
        "different_answers": int(sum(differs for _, differs in told)),
        "requests_per_s": round(requests / seconds, 1),
        **{
            f"latency_p{p}_ms": round(float(np.percentile(milliseconds, p)), 2)
            for p in (50, 90, 99)
        },
        "memory_mb_after_each_tenth": ", ".join(f"{mb:.0f}" for mb in memory),
        "memory_growth_mb_of_second_half": round(memory[-1] - memory[4], 1),
    }


def _plain(answer):
    return {
        name: np.asarray(value.numpy()).tolist()
        for name, value in answer.items()
    }


def _resident_mb():
    """Memory held now, by Linux's own account; 0 elsewhere."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return 0.0
    import os

    pages = int(status.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
