"""Many clients at once: `python -m training.research.campaigns.load`.

Threads ask one export for neighbors, some with damaged images; every answer
is compared with the one that a single thread got before.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro


@dataclass(frozen=True)
class LoadCommand:
    """Searches with many threads and compares every answer."""

    model: Annotated[Path, tyro.conf.Positional] = Path("saved_models/glyphs")
    """Exported retriever."""
    requests: int = 10_000
    """Requests of one image each."""
    threads: int = 16
    """Clients at once."""
    bad: float = 0.05
    """Share of the requests whose image is damaged."""
    signatures: tuple[Literal["search_exact", "search_ann"], ...] = (
        "search_exact",
    )
    """Exact search, ScaNN's, or one after the other."""
    seed: int = 0
    """Seed of the requests' order."""
    json: Path | None = None
    """File for the record."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        LoadCommand,
        prog="python -m training.research.campaigns.load",
        description=__doc__,
        args=arguments,
    )
    from training.browsing.exports import exported_folder

    records = {}
    try:
        for signature in command.signatures:
            record = records[signature] = load(
                exported_folder(command.model),
                command.requests,
                threads=command.threads,
                bad=command.bad,
                signature=signature,
                seed=command.seed,
            )
            for name, value in record.items():
                print(f"{name:>32}  {value}", flush=True)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if command.json is not None:
        _keep(command, records)
    if any(record["different_answers"] for record in records.values()):
        sys.exit("error: answers differ from the single-threaded ones")


def load(
    folder: Path,
    requests: int,
    *,
    threads: int = 16,
    bad: float = 0.05,
    signature: str = "search_exact",
    seed: int = 0,
) -> dict:
    """Asks an export from many threads.

    Args:
        folder: The export.
        requests: Requests of one image each.
        threads: Clients at once.
        bad: Share of requests with a damaged image, in [0, 1].
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
    search = model.signatures[signature]
    generator = np.random.default_rng(seed)
    whole = whole_images(generator)
    damaged = [damage(generator, whole) for _ in whole]
    contents = [tf.constant(content) for content in whole + damaged]
    expected = [_plain(search(image_bytes=content)) for content in contents]
    is_bad = generator.random(requests) < bad
    chosen = generator.integers(0, len(whole), requests) + is_bad * len(whole)

    def ask(which):
        start = time.monotonic()
        answer = _plain(search(image_bytes=contents[which]))
        return time.monotonic() - start, answer != expected[which]

    half = requests // 2
    with ThreadPoolExecutor(threads) as pool:
        start = time.monotonic()
        told = list(pool.map(ask, chosen[:half]))
        middle = _resident_mb()
        told += list(pool.map(ask, chosen[half:]))
        seconds = time.monotonic() - start
    milliseconds = np.array([latency for latency, _ in told]) * 1000
    return {
        "requests": requests,
        "bad_images": int(is_bad.sum()),
        "different_answers": int(sum(differs for _, differs in told)),
        "requests_per_s": round(requests / seconds, 1),
        **{
            f"latency_p{p}_ms": round(float(np.percentile(milliseconds, p)), 2)
            for p in (50, 90, 99)
        },
        "memory_growth_mb_of_second_half": round(_resident_mb() - middle, 1),
    }


def _keep(command, records):
    from training.research.campaigns.report import keep_campaign
    from training.research.results.records import Table

    first = next(iter(records.values()))
    rows = [
        [name.replace("_", " "), *(str(r[name]) for r in records.values())]
        for name in first
    ]
    keep_campaign(
        command.json,
        "load",
        "Many clients at once",
        "Threads ask one export for neighbors, one image a request, some of "
        "them damaged; every answer is compared with the one that a single "
        "thread got before. Latencies are those of a loaded machine.",
        command,
        [Table(("", *records), rows)],
    )


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
