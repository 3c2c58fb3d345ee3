"""What every export says of itself."""

import datetime
import importlib.metadata
from typing import Any

import keras

from keras_gsp.retrieval.serving.served_encoder import ServedEncoder

METADATA = "metadata.json"


def exported_facts(
    served: ServedEncoder, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    """Versions, sizes and preparation, beside what the caller says.

    Args:
        served: the encoder that is exported.
        metadata: JSON values to put first.

    Returns:
        A dict of JSON values.
    """
    import tensorflow as tf

    now = datetime.datetime.now(datetime.UTC)
    return {
        **(metadata or {}),
        "exported": now.isoformat(timespec="seconds"),
        "versions": {
            "keras_gsp": importlib.metadata.version("keras-gsp"),
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
        },
        "image_shape": [served.height, served.width, served.channels],
        "crop_fraction": served.crop_fraction,
        "max_pixels": served.max_pixels,
        "embedding_size": served.embedding_size,
    }
