"""An exported SavedModel, loaded with the operations that it needs."""

import json
from pathlib import Path
from typing import Any


def export_facts(folder: Path) -> dict[str, Any]:
    """What an export says of itself, from its `metadata.json`.

    Raises:
        FileNotFoundError: the folder holds no export.
    """
    file = Path(folder) / "metadata.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"There must be an export. Received: {folder}, which has no "
            f"{file.name}. Make one with `python -m training.export RUN`."
        )
    return json.loads(file.read_text())


def load_export(folder: Path) -> Any:
    """Loads an export; ScaNN's operations before the graph that has them.

    Args:
        folder: What `training.export` wrote. Its functions live as long as
            the model does.

    Raises:
        FileNotFoundError: the folder holds no export.
        ImportError: it searches with ScaNN, which is missing.
    """
    if "search_ann" in export_facts(folder).get("signatures", []):
        from keras_gsp.retrieval.index.scann_index import import_scann

        import_scann()
    import tensorflow as tf

    return tf.saved_model.load(str(folder))
