"""What a run depends on besides its recipe: versions and commit."""

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
    """Versions of Python and packages, and the commit of the checkout."""
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
    """The commit, marked when files differ from it; None without git."""
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
