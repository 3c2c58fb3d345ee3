"""Damaged files are refused by name, or change nothing.

python -m pytest -m slow tests/endurance/test_damage.py --damages 2000
"""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.callbacks.exact_resume import checkpoints

if keras.backend.backend() != "tensorflow":
    pytest.skip("files do not depend on the backend", allow_module_level=True)

ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype("float32")


def save(path, name):
    if name == "checkpoint":
        arrays = {"weights": ROWS, "step": np.array(3)}
        checkpoints.write_checkpoint(path / "a.npz", {"step": 3}, arrays)
    else:
        getattr(gsp.retrieval, name)(ROWS, np.arange(40)).save(path)


def load(path, name):
    if name == "checkpoint":
        manifest, arrays = checkpoints.read_checkpoint(path / "a.npz")
        return manifest, {k: (v.shape, v.tobytes()) for k, v in arrays.items()}
    neighbors = getattr(gsp.retrieval, name).load(path).search(ROWS[:5], k=4)
    return neighbors.ids.tolist(), neighbors.distances.tobytes()


def damages(content, count, generator):
    """Yields a file that is missing, empty, cut, longer, with a bit flipped."""
    yield from (None, b"", content + b"x", content[: len(content) // 2])
    for position in generator.permutation(len(content))[:count]:
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        yield bytes(changed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["checkpoint", "ExactIndex", "FaissIndex"])
def test_damage_is_refused_by_name_or_changes_nothing(name, tmp_path, request):
    if name == "FaissIndex":
        pytest.importorskip("faiss")
    count = request.config.getoption("--damages")
    generator, whole = np.random.default_rng(0), tmp_path / "whole"
    save(whole, name)
    expected = load(whole, name)
    for file in filter(lambda path: path.is_file(), sorted(whole.rglob("*"))):
        content = file.read_bytes()
        for damaged in damages(content, count, generator):
            file.unlink(missing_ok=True)
            if damaged is not None:
                file.write_bytes(damaged)
            try:
                assert load(whole, name) == expected, file.name
            except (ValueError, FileNotFoundError) as error:
                names = str(whole), file.name
                assert any(name in str(error) for name in names), error
        file.write_bytes(content)
    assert load(whole, name) == expected
