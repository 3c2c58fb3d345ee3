"""Damaged artefacts.

    python -m training.research.campaigns.damage

Every file of an exact index (in float32 and in int8, with attributes and a
threshold), a faiss and a ScaNN index, a checkpoint and, with `--model`, an
export is damaged in turn and the artefact is loaded. Damages: one bit flipped, at `--flips` places of each file, or in each byte of a smaller one;
eight bits flipped; a cut, empty, longer or missing file; another file of the
artefact, or of another version, in its place. `refused`: a ValueError or FileNotFoundError; `whole`: loaded what
was saved, bit by bit; `silently wrong`: loaded something else; `crashed`:
another error; `not named`: refused without the name of the file or its folder.
"""

import hashlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from training.research.report import CommandSettings, Table, run_measurement

VERDICTS = "refused", "whole", "silently wrong", "crashed", "not named"
HEADINGS = "artefact", "files", "damages", *VERDICTS


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Number and kind of the damages."""

    model: Path | None = None
    """Exported retriever to damage too; none by default."""
    flips: int = 2000
    """Places of each file where one bit is flipped."""
    times: int = 20
    """Other damages of each kind a file."""
    seed: int = 0
    """Seed of the damages."""

    SMALL = {"flips": 3, "times": 1}


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a row for each artefact; fails where damage is not refused."""
    generator = np.random.default_rng(settings.seed)
    sizes = settings.flips, settings.times
    rows = []
    with tempfile.TemporaryDirectory() as aside:
        for name, (make, load) in artefacts(settings.model).items():
            whole, other = Path(aside, name, "1"), Path(aside, name, "2")
            make(whole, 0)
            make(other, 1)
            found = damage(whole, other, load, *sizes, generator)
            files = sum(path.is_file() for path in whole.rglob("*"))
            tried = found.total() - found["not named"]
            counts = [found[verdict] for verdict in VERDICTS]
            rows.append([str(one) for one in (name, files, tried, *counts)])
            print(*rows[-1], sep=" | ", flush=True)
    yield Table(HEADINGS, rows)
    if any(cell != "0" for row in rows for cell in row[5:]):
        raise ValueError("Damage was not noticed, or not named.")


def artefacts(model: Path | None) -> dict[str, tuple[Callable, Callable]]:
    """Name -> functions that make one and that return its content."""
    load_exact = partial(_load_index, "ExactIndex")
    found: dict[str, tuple[Callable, Callable]] = {
        "exact index": (_exact, load_exact),
        "exact index, int8": (partial(_exact, storage="int8"), load_exact),
        "checkpoint": (_checkpoint, _load_checkpoint),
    }
    for module, name in ("faiss", "FaissIndex"), ("scann", "ScannIndex"):
        if find_spec(module):
            pair = partial(_approximate, name), partial(_load_index, name)
            found[f"{module} index"] = pair
    if model is not None:
        found["export"] = (_copy_of(model), _load_export)
    return found


def damage(
    whole: Path,
    other: Path,
    load: Callable[[Path], Any],
    flips: int,
    times: int,
    generator: np.random.Generator,
) -> Counter:
    """Damages each file of an artefact and counts how loading ends.

    `whole` is the artefact and whole again afterwards, `other` another version
    of it; `load` maps its folder to its content.
    """
    expected = load(whole)
    found: Counter = Counter()
    files = sorted(path for path in whole.rglob("*") if path.is_file())
    for path in files:
        content = path.read_bytes()
        damages = list(_drawn(content, flips, times, generator))
        # A file that is all of an artefact may be that of another one.
        if len(files) > 1:
            same = other / path.relative_to(whole)
            damages.append(files[files.index(path) - 1].read_bytes())
            damages.append(same.read_bytes() if same.is_file() else b"")
        for wrong in damages:
            if wrong != content:
                path.write_bytes(wrong)
                found.update(_verdicts(load, whole, path, expected))
        path.unlink()
        found.update(_verdicts(load, whole, path, expected))
        path.write_bytes(content)
    if load(whole) != expected:
        raise RuntimeError(f"{whole} must be whole again. Received: not.")
    return found


def _drawn(content, flips, times, generator):
    """Yields a file with flipped bits, cut, longer and empty."""
    for place in generator.permutation(len(content))[:flips]:
        yield _flipped(content, [place], generator)
    for _ in range(times):
        yield content + generator.bytes(int(generator.integers(1, 100)))
        if content:
            places = generator.integers(len(content), size=8)
            yield _flipped(content, places, generator)
            yield content[: generator.integers(len(content))]
    yield b""


def _flipped(content, places, generator):
    changed = bytearray(content)
    for place in places:
        changed[place] ^= 1 << int(generator.integers(8))
    return bytes(changed)


def _verdicts(load, whole, path, expected):
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = load(whole)
    except (ValueError, FileNotFoundError) as error:
        is_named = str(whole) in str(error) or path.name in str(error)
        return ["refused"] if is_named else ["refused", "not named"]
    except Exception as error:  # noqa: BLE001 - what else it may be is asked
        print(f"{path.name}: {type(error).__name__}: {error}", flush=True)
        return ["crashed"]
    return ["whole" if content == expected else "silently wrong"]


def _rows(seed):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(40, 6)).astype("float32")


def _exact(path, seed, storage="float32"):
    import keras_gsp as gsp

    rows = _rows(seed)
    index = gsp.retrieval.ExactIndex(
        rows,
        labels=np.arange(40) % 5,
        ids=[f"item {number}" for number in range(40)],
        attributes={"year": 2000 + np.arange(40) + seed},
        storage=storage,
    )
    index.match = gsp.retrieval.MatchThreshold.calibrated(
        rows, np.arange(40) % 5, false_accept_rate=0.2
    )
    index.save(path)


def _approximate(name, path, seed):
    import keras_gsp as gsp

    kind = getattr(gsp.retrieval, name)
    kind(_rows(seed), labels=np.arange(40) % 5).save(path)


def _content(index):
    found = index.search(_rows(2)[:5], k=4)
    match = index.match
    return (
        found.ids.tolist(),
        found.labels.tolist(),
        found.distances.tobytes(),
        {k: v.tolist() for k, v in index.gallery.attributes.items()},
        index.gallery.num_added,
        match and match.get_config(),
    )


def _load_index(name, path):
    import keras_gsp as gsp

    return _content(getattr(gsp.retrieval, name).load(path))


def _checkpoint(path, seed):
    from keras_gsp.callbacks.exact_resume import checkpoints

    path.mkdir(parents=True)
    manifest = {"step": 3 + seed, "settings": {"seed": seed}}
    arrays = {"weights": _rows(seed), "step": np.array(3 + seed)}
    checkpoints.write_checkpoint(path / "step-000000003.npz", manifest, arrays)


def _load_checkpoint(path):
    from keras_gsp.callbacks.exact_resume import checkpoints

    manifest, arrays = checkpoints.read_checkpoint(path / "step-000000003.npz")
    return manifest, {k: (v.shape, v.tobytes()) for k, v in arrays.items()}


def _copy_of(model):
    def make(path, seed):
        from keras_gsp.storage.checksums import write_checksums

        shutil.copytree(model, path)
        if seed:  # Another export: every file is another one.
            for file in path.rglob("*"):
                if file.is_file():
                    file.write_bytes(file.read_bytes() + b" ")
            write_checksums(path)

    return make


def _load_export(path):
    from keras_gsp.storage.checksums import CHECKSUMS, verify_checksums

    verify_checksums(path)
    # Checksums say nothing of themselves; spaces in them change nothing.
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file() and file.name != CHECKSUMS
    }


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
