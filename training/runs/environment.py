"""Versions and commit of a run."""

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
