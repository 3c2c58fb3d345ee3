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
from keras_gsp.storage.checksums import verify_checksums, write_checksums
from keras_gsp.storage.whole import current_folder

if keras.backend.backend() != "tensorflow":
    pytest.skip("files do not depend on the backend", allow_module_level=True)


def random_rows(seed):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(40, 6)).astype("float32")


def save(path, seed, name):
    if name.endswith("Index"):
        facts = {"ids": [f"item {number}" for number in range(40)]}
        facts["attributes"] = {"year": 2000 + np.arange(40) + seed}
        labels = np.arange(40) % 5
        getattr(gsp.retrieval, name)(random_rows(seed), labels, **facts).save(
            path
        )
        # As a plain folder: its name and the checksums are not damaged.
        version = current_folder(path).rename(path.with_name("version"))
        shutil.rmtree(path)
        version.rename(path)
        return
    path.mkdir(parents=True)
    if name == "checkpoint":
        manifest = {"step": 3 + seed, "settings": {"seed": seed}}
        arrays = {"weights": random_rows(seed), "step": np.array(3 + seed)}
        file = path / "step-000000003.npz"
        checkpoints.write_checkpoint(file, manifest, arrays)
        return
    for number in range(3):
        content = np.random.default_rng([seed, number]).bytes(300)
        (path / f"{number}.bin").write_bytes(content)
    write_checksums(path)


def load(path, name):
    if name.endswith("Index"):
        index = getattr(gsp.retrieval, name).load(path)
        found = index.search(random_rows(2)[:5], k=4)
        columns = {k: v.tolist() for k, v in index.gallery.attributes.items()}
        return found.ids.tolist(), found.distances.tobytes(), columns
    if name == "checkpoint":
        file = path / "step-000000003.npz"
        manifest, arrays = checkpoints.read_checkpoint(file)
        return manifest, {k: (v.shape, v.tobytes()) for k, v in arrays.items()}
    verify_checksums(path)
    files = sorted(path.glob("*.bin"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


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
@pytest.mark.parametrize(
    "name", ["checkpoint", "export", "ExactIndex", "FaissIndex", "ScannIndex"]
)
def test_damage_is_refused_by_name_or_changes_nothing(name, tmp_path, request):
    if name in ("FaissIndex", "ScannIndex"):
        pytest.importorskip(name.removesuffix("Index").lower())
    count = request.config.getoption("--damages")
    generator = np.random.default_rng(0)
    whole, other = tmp_path / "whole", tmp_path / "other"
    save(whole, 0, name)
    save(other, 1, name)
    expected, num_tried = load(whole, name), 0
    files = [file for file in sorted(whole.rglob("*")) if file.is_file()]
    for file in files:
        content = file.read_bytes()
        wrong = [None, *damages(content, count, generator)]
        if len(files) > 1:  # A file of another one of its kind.
            wrong.append((other / file.relative_to(whole)).read_bytes())
        for damaged in wrong:
            if damaged == content:
                continue
            num_tried += 1
            file.unlink(missing_ok=True)
            if damaged is not None:
                file.write_bytes(damaged)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = load(whole, name)
            except (ValueError, FileNotFoundError) as error:
                names = str(whole), file.name
                assert any(one in str(error) for one in names), error
            else:
                assert found == expected, f"{file.name}: silently wrong"
        file.write_bytes(content)
    assert load(whole, name) == expected
    print(f"{name}: {num_tried} damages")
    assert num_tried > sum(min(one.stat().st_size, count) for one in files)
