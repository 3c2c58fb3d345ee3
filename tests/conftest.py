"""Fixtures and settings shared by all tests."""

import contextlib
import gc
import sys
from pathlib import Path
from unittest import mock

import keras
import pytest

import keras_gsp

# Sizes of the tests in `tests/endurance`.
SIZES = {"--kills": 2, "--damages": 9, "--requests": 120}


def pytest_addoption(parser):
    for name, default in SIZES.items():
        parser.addoption(name, type=int, default=default)


def pytest_collection_modifyitems(items):
    """What takes longest comes first, so that both workers end together."""
    items.sort(
        key=lambda item: (
            item.path.name != "test_examples.py",
            "training" not in item.path.parts,
        )
    )


@pytest.fixture(autouse=True)
def fresh_session():
    """Every test starts from the same seed and ordinary precision."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
    # Collecting garbage after each of thousands of tests took a third of the
    # time; Python does it often enough by itself.
    keras.utils.clear_session(free_memory=False)


@pytest.fixture(autouse=True, scope="module")
def memory_of_one_file():
    """Gives back what the compiled functions of a file's tests held."""
    yield
    gc.collect()
    # What outlives its file, mostly caches of the frameworks, outlives the
    # run: looking at all of it again took seconds after each file.
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def tensors_on_a_gpu_are_read():
    """Lets tests, not the package, hand PyTorch's tensors of a GPU to NumPy."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        yield
        return
    package = str(Path(keras_gsp.__file__).parent)
    original = torch.Tensor.__array__

    def array(tensor, *args, **kwargs):
        if not sys._getframe(1).f_code.co_filename.startswith(package):
            tensor = tensor.detach().cpu()
        return original(tensor, *args, **kwargs)

    with mock.patch.object(torch.Tensor, "__array__", array):
        yield


@pytest.fixture
def exact_layers():
    """Convolutions and dense layers in full precision on a GPU, too.

    The package leaves them the backend's setting, which rounds there.
    """
    scope = contextlib.nullcontext()
    if keras.backend.backend() == "jax":
        import jax

        scope = jax.default_matmul_precision("highest")
    elif keras.backend.backend() == "torch":
        import torch

        scope = torch.backends.cudnn.flags(allow_tf32=False)
    with scope:
        yield


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """An empty cache folder."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("KERAS_GSP_CACHE", str(folder))
    return folder


@pytest.fixture
def double_precision():
    """Lets JAX compute in float64, which it rounds to float32 otherwise."""
    scope = contextlib.nullcontext()
    if keras.backend.backend() == "jax":
        import jax

        scope = jax.enable_x64(True)
    with scope:
        yield
