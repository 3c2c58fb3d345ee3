"""Versions and commit of a run."""

import contextlib
import platform
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = (
    *("keras-gsp", "keras", "tensorflow", "tensorflow-cpu"),
    *("jax", "torch", "numpy", "scann"),
)


def environment() -> dict:
    """Returns versions of Python and packages, and the commit."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(_versions()),
        "commit": _commit(),
    }


def peak_memory() -> int:
    """Returns the most bytes taken: on an accelerator, else by the process."""
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    elif keras.backend.backend() == "jax":
        import jax

        statistics = jax.local_devices()[0].memory_stats()
        if statistics:
            return statistics["peak_bytes_in_use"]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kilobytes elsewhere.
    return most if sys.platform == "darwin" else 1024 * most


def _versions():
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)


def _commit():
    """Returns the commit, marked when files differ; None without git."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
