"""Optional packages, by the extra that installs them."""

import importlib
from typing import Any


def needed(module: str, user: str, install: str) -> Any:
    """Imports a module, or raises `ImportError` that says how to get it."""
    try:
        return importlib.import_module(module)
    # An op library built for another TensorFlow raises errors of all kinds.
    except Exception as error:  # noqa: BLE001
        raise ImportError(
            f"`{user}` needs {module}: pip install {install}. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
