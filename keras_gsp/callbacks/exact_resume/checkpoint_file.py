"""One checkpoint in one file, written so that a kill leaves it whole or absent.

The file is a plain NPZ archive: named arrays and a JSON text under
`manifest`. Nothing in it is pickled, so that a foreign file cannot run code.
"""

import hashlib
import json
import os
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from keras_gsp.storage.whole import whole_file

MANIFEST = "manifest"


def write_checkpoint(
    path: str | os.PathLike, manifest: dict, arrays: dict
) -> None:
    """Writes a checkpoint in one step: afterwards it is there, or it is not.

    See `keras_gsp.storage.whole.whole_file`.

    Args:
        path: where to; a file already there is replaced.
        manifest: anything JSON can hold.
        arrays: NumPy arrays by name; bfloat16 and float8 are allowed.
    """
    described = {
        "manifest": manifest,
        "arrays": {
            name: {"shape": array.shape, "dtype": array.dtype.name}
            for name, array in arrays.items()
        },
        "sha256": _digest(arrays),
    }
    text = np.frombuffer(json.dumps(described).encode(), "uint8")
    content: dict[str, Any] = {MANIFEST: text}
    content |= {name: _storable(array) for name, array in arrays.items()}
    # Through a handle, or NumPy would add its own ending to the name.
    with whole_file(path) as aside, open(aside, "wb") as file:
        np.savez(file, **content)


def read_checkpoint(path: str | os.PathLike) -> tuple[dict, dict]:
    """Reads a checkpoint back and checks every byte of it.

    Args:
        path: a file written by `write_checkpoint`.

    Returns:
        The manifest and the arrays by name.

    Raises:
        ValueError: the file is truncated, damaged or no checkpoint.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            described = json.loads(archive[MANIFEST].tobytes())
            arrays = {
                name: _restored(archive[name], **description)
                for name, description in described["arrays"].items()
            }
            manifest, expected = described["manifest"], described["sha256"]
    except (
        AttributeError,
        EOFError,
        KeyError,
        OSError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(
            f"`{path}` is truncated, damaged or no checkpoint: "
            f"{type(error).__name__}: {error}"
        ) from error
    if _digest(arrays) != expected:
        raise ValueError(f"`{path}` is damaged: its checksum does not match.")
    return manifest, arrays


def _digest(arrays):
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} {array.dtype.name} ".encode())
        digest.update(_storable(array).tobytes())
    return digest.hexdigest()


def _storable(array):
    """NPZ keeps NumPy's own dtypes only; bfloat16 travels as bytes."""
    if array.dtype.isbuiltin == 1:
        return array
    return np.frombuffer(array.tobytes(), "uint8")


def _restored(array, shape, dtype):
    if array.dtype.name == dtype:
        return array
    dtype = getattr(ml_dtypes, dtype)
    return np.frombuffer(array.tobytes(), dtype).reshape(shape)
