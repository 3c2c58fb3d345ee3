"""Embeds the canaries of an export again."""

from pathlib import Path
from typing import Any

from keras_gsp._checks import check_interval
from keras_gsp.retrieval.retriever import ENCODER, Retriever
from keras_gsp.retrieval.serving.canaries import FILE, MOVED, Canaries
from keras_gsp.retrieval.serving.portable import PortableEncoder
from keras_gsp.retrieval.space import SpaceFingerprint, check_same_space
from keras_gsp.retrieval.verification import verify


def verify_export(
    path: str | Path, *, largest_distance: float = MOVED
) -> dict[str, Any]:
    """Embeds the canaries of an export again and raises if one has moved.

    Canaries are a dozen pictures that `export_retriever(canaries=...)`,
    `Retriever.export`, `Retriever.save`, `export_onnx` and `export_litert`
    write with their embeddings. Call it where the export is served.

    Args:
        path: the folder: a SavedModel, ONNX, LiteRT, or a saved `Retriever`.
        largest_distance: to the stored embedding, relative to its length.

    Returns:
        A dict: `num_canaries` and `largest_distance`, the one found.

    Raises:
        FileNotFoundError: no export there, or one without canaries.
        RuntimeError: canaries that moved, by name.
        ValueError: damaged files, canaries of another encoder, or a distance
            that is not positive.

    Example:

    ```python
    import pathlib, tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    encoder = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    root = pathlib.Path(tempfile.mkdtemp())
    keras.utils.save_img(root / "a.png", np.random.random((4, 4, 3)))
    retriever = gsp.retrieval.Retriever.from_folder(root, encoder)
    retriever.save(root / "saved")
    facts = gsp.retrieval.verify_export(root / "saved")
    assert facts["num_canaries"] == 1
    ```
    """
    check_interval("(0, inf)", largest_distance=largest_distance)
    folder = Path(path)
    facts = verify(folder)
    canaries = Canaries.load(folder)
    space = facts.get("space")
    if (folder / ENCODER).is_file():
        retriever = Retriever.load(folder)
        space = retriever._served.space
        found = retriever.embed(canaries.images)
    else:
        space = space and SpaceFingerprint.from_config(space)
        if (folder / "saved_model.pb").is_file():
            import tensorflow as tf

            model = tf.saved_model.load(str(folder))
            answer = model.signatures["embed"](
                image_bytes=tf.constant(canaries.images)
            )
            found = answer["embedding"].numpy()
        else:
            found = PortableEncoder(folder).embed(canaries.images)
    check_same_space(canaries.space, space, FILE)
    largest = canaries.check(found, largest_distance)
    return {"num_canaries": len(found), "largest_distance": largest}
