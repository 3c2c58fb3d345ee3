"""Fixtures and settings shared by all tests."""

import keras
import pytest


@pytest.fixture(autouse=True)
def fresh_session():
    """Every test starts from the same seed and ordinary precision."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
    keras.backend.clear_session()
