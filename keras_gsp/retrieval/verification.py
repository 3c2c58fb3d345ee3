"""Verifies a saved index or an export before it is loaded."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_gsp.storage.checksums import verify_checksums

METADATA, INDEX = "metadata.json", "index.json"


def verify(path: str | Path, *, skip: Collection[str] = ()) -> dict[str, Any]:
    """Compares the files of a saved index or an export with their checksums.

    The `load` of every index calls it; call it yourself before
    `tf.saved_model.load`. It finds damage, not tampering.

    Args:
        path: a saved index or an export.
        skip: names of files that must be there but are not read, for example
            a large `"embeddings.npy"`.

    Returns:
        `index.json` of an index, `metadata.json` of an export.

    Raises:
        FileNotFoundError: neither an index nor an export is there.
        ValueError: files that are missing or changed, by name.

    Example:

    ```python
    import tempfile
    import numpy as np
    import keras_gsp as gsp

    with tempfile.TemporaryDirectory() as folder:
        gsp.retrieval.ExactIndex(np.eye(3)).save(f"{folder}/index")
        facts = gsp.retrieval.verify(f"{folder}/index")
        assert facts["kind"] == "exact" and facts["items"] == 3
    ```
    """
    folder = Path(path)
    found = [name for name in (METADATA, INDEX) if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(
            f"`path` must hold {METADATA} or {INDEX}, as an export or a saved "
            f"index does. Received: {str(path)!r}."
        )
    verify_checksums(folder, skip=skip)
    return json.loads((folder / found[0]).read_text(encoding="utf-8"))
