"""Record in an encoder how its images must be resized and cropped."""

from typing import Any

import keras

from keras_gsp._configured import ConfiguredLayer


class ExpectedPreprocessing(ConfiguredLayer, keras.layers.Identity):
    """Passes images on and records how they must be cut.

    `build_encoder(..., preprocessing=...)` adds it, so that the
    `gsp.data.Preprocessing` is saved with the encoder; `None` in a model that
    resizes images itself, of whatever size, `shorter_side` pixels at most.
    """

    def __init__(
        self,
        preprocessing: Any,
        shorter_side: int | None = None,
        **kwargs: Any,
    ) -> None:
        # The policy must not cast what passes through.
        super().__init__(autocast=False, **kwargs)
        if isinstance(preprocessing, dict):
            preprocessing = keras.saving.deserialize_keras_object(preprocessing)
        self.preprocessing = preprocessing
        self.shorter_side = shorter_side
