"""Fixtures and settings shared by all tests."""

import contextlib
import gc

import keras
import pytest

# Sizes of the tests in `tests/endurance`.
SIZES = {"--kills": 2, "--damages": 9, "--requests": 120}


def pytest_addoption(parser):
    for name, default in SIZES.items():
        parser.addoption(name, type=int, default=default)


def pytest_collection_modifyitems(items):
    """Commands first: their files take longest, and workers end together."""
    items.sort(key=lambda item: "training" not in item.path.parts)


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
