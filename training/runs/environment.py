"""Versions, commit and device of a run."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "keras-gsp",
    "keras",
    "tensorflow",
    "tensorflow-cpu",
    "jax",
    "numpy",
    "scann",
)


def environment() -> dict:
    """Returns versions of Python and packages, and the commit."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {
            name: version
            for name in PACKAGES
            if (version := _version(name)) is not None
        },
        "commit": _commit(),
    }


def device_name() -> str:
    """Returns the name of the device that the backend computes on.

    Imports the backend, which takes an accelerator's memory: call it after the
    measurement.
    """
    import keras

    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        if device.platform != "cpu":
            return device.device_kind
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU"):
            details = tf.config.experimental.get_device_details(device)
            return details.get("device_name", device.name)
    return _processor()


def _processor():
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [x.partition(": ")[2] for x in lines if x.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores"


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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
