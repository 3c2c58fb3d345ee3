"""The facts of a saved index or an export, once its files are verified."""

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_gsp.storage.checksums import verify_checksums

METADATA, INDEX = "metadata.json", "index.json"


def verified_facts(
    path: str | Path, *, skip: Collection[str] = ()
) -> dict[str, Any]:
    """Returns `metadata.json` or `index.json` if no file is damaged.

    Files named in `skip`, such as large mapped ones, must be there but are not
    read. Missing and changed files are a `ValueError` that names them; a folder
    with neither JSON file is a `FileNotFoundError`.
    """
    folder = Path(path)
    names = [name for name in (METADATA, INDEX) if (folder / name).is_file()]
    if not names:
        raise FileNotFoundError(
            f"`path` must hold {METADATA} or {INDEX}, as an export or a saved "
            f"index does. Received: {os.path.realpath(path)!r}."
        )
    verify_checksums(folder, skip=skip)
    return json.loads((folder / names[0]).read_text(encoding="utf-8"))
