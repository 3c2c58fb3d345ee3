"""Damaged files are refused by name, or change nothing.

python -m pytest -m slow tests/endurance/test_damage.py --damages 2000
"""

import hashlib
import shutil
import warnings

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.callbacks.exact_resume import checkpoints
from keras_gsp.storage.checksums import (
    CHECKSUMS,
    verify_checksums,
    write_checksums,
)

if keras.backend.backend() != "tensorflow":
    pytest.skip("files do not depend on the backend", allow_module_level=True)


def random_rows(seed):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(40, 6)).astype("float32")


def save_index(path, seed, name):
    rows, labels = random_rows(seed), np.arange(40) % 5
    options = {}
    if name == "ExactIndex":
        options["ids"] = [f"item {number}" for number in range(40)]
        options["attributes"] = {"year": 2000 + np.arange(40) + seed}
    index = getattr(gsp.retrieval, name)(rows, labels=labels, **options)
    index.save(path)


def load_index(path, name):
    index = getattr(gsp.retrieval, name).load(path)
    found = index.search(random_rows(2)[:5], k=4)
    columns = {k: v.tolist() for k, v in index.gallery.attributes.items()}
    return found.ids.tolist(), found.distances.tobytes(), columns


def save_checkpoint(path, seed):
    path.mkdir(parents=True)
    manifest = {"step": 3 + seed, "settings": {"seed": seed}}
    arrays = {"weights": random_rows(seed), "step": np.array(3 + seed)}
    checkpoints.write_checkpoint(path / "step-000000003.npz", manifest, arrays)


def load_checkpoint(path):
    manifest, arrays = checkpoints.read_checkpoint(path / "step-000000003.npz")
    return manifest, {k: (v.shape, v.tobytes()) for k, v in arrays.items()}


def save_folder(path, seed):
    path.mkdir(parents=True)
    for number in range(3):
        content = np.random.default_rng([seed, number]).bytes(300)
        (path / f"{number}.bin").write_bytes(content)
    write_checksums(path)


def load_folder(path):
    verify_checksums(path)
    files = sorted(file for file in path.iterdir() if file.name != CHECKSUMS)
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


ARTEFACTS = {
    "checkpoint": (save_checkpoint, load_checkpoint),
    "export": (save_folder, load_folder),
    **{
        name: (
            lambda path, seed, name=name: save_index(path, seed, name),
            lambda path, name=name: load_index(path, name),
        )
        for name in ("ExactIndex", "FaissIndex", "ScannIndex")
    },
}


def damages(content, count, generator):
    """Yields a file with flipped bits, truncated, longer and empty."""
    for position in generator.permutation(len(content))[:count]:
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        yield bytes(changed)
    for _ in range(1 + count // 100):
        yield content + generator.bytes(int(generator.integers(1, 100)))
        yield content[: generator.integers(len(content))]
    yield b""


@pytest.mark.slow
@pytest.mark.parametrize("name", ARTEFACTS)
def test_damage_is_refused_by_name_or_changes_nothing(name, tmp_path, request):
    if name in ("FaissIndex", "ScannIndex"):
        pytest.importorskip(name.removesuffix("Index").lower())
    count = request.config.getoption("--damages")
    save, load = ARTEFACTS[name]
    generator = np.random.default_rng(0)
    whole, other = tmp_path / "whole", tmp_path / "other"
    save(whole, 0)
    save(other, 1)
    expected, num_tried = load(whole), 0
    files = [file for file in sorted(whole.rglob("*")) if file.is_file()]
    for file in files:
        content = file.read_bytes()
        wrong = list(damages(content, count, generator))
        if len(files) > 1:  # A file of another one of its kind.
            wrong.append((other / file.relative_to(whole)).read_bytes())
        for damaged in [*wrong, None]:
            if damaged == content:
                continue
            num_tried += 1
            file.unlink(missing_ok=True)
            if damaged is not None:
                file.write_bytes(damaged)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = load(whole)
            except (ValueError, FileNotFoundError) as error:
                names = str(whole), file.name
                assert any(one in str(error) for one in names), error
            else:
                assert found == expected, f"{file.name}: silently wrong"
        file.write_bytes(content)
    assert load(whole) == expected
    assert num_tried > len(files) * count
    shutil.rmtree(other)
