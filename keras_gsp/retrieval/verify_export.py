"""Verifies an export before it serves: its files, then its canaries."""

from pathlib import Path
from typing import Any

from keras_gsp.retrieval.retriever import ENCODER, Retriever
from keras_gsp.retrieval.serving.artefact_facts import FILE, Canaries
from keras_gsp.storage.checksums import verified_facts
from keras_gsp.storage.whole import reading


def verify_export(path: str | Path) -> dict[str, Any]:
    """Compares files with their checksums and embeds the canaries again.

    Canaries are a dozen pictures that `export_retriever(canaries=...)`,
    `Retriever.export` and `Retriever.save` write with their embeddings. A
    driver, a library or a converter that computes something else moves them.
    Call it where the export is served, before `tf.saved_model.load`. It finds
    damage, not tampering.

    Args:
        path: an export, a saved `Retriever` or a saved index.

    Returns:
        A dict: `num_canaries`, 0 for an export without them and for an index,
        and `largest_distance` to a stored embedding, relative to its length.

    Raises:
        FileNotFoundError: neither an export nor an index is there.
        RuntimeError: canaries that moved by more than 0.001, by name.
        ValueError: files that are missing or changed, by name.

    Example:

    ```python
    import pathlib, tempfile

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    root = pathlib.Path(tempfile.mkdtemp())
    keras.utils.save_img(root / "a.png", np.random.random((4, 4, 3)))
    retriever = gsp.retrieval.Retriever.from_folder(root, encoder)
    retriever.save(root / "saved")
    facts = gsp.retrieval.verify_export(root / "saved")
    assert facts["num_canaries"] == 1
    ```
    """
    with reading(path) as folder:
        verified_facts(folder)
        if not (folder / FILE).is_file():
            return {"num_canaries": 0, "largest_distance": 0.0}
        canaries = Canaries.load(folder)
        is_saved = (folder / ENCODER).is_file()
        embed = Retriever.load(folder).embed if is_saved else _export(folder)
        largest = canaries.check(embed(canaries.images))
    return {"num_canaries": len(canaries.ids), "largest_distance": largest}


def _export(folder):
    """The function of an export from files to embeddings."""
    import tensorflow as tf

    model = tf.saved_model.load(str(folder))

    def embed(images):
        answer = model.signatures["embed"](image_bytes=tf.constant(images))
        return answer["embedding"].numpy()

    return embed
