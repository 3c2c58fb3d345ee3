"""Record in an encoder how its images must be cut."""

from typing import Any

import keras

from keras_gsp._configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="keras_gsp")
class ExpectedPreprocessing(ConfiguredLayer, keras.layers.Identity):
    """Records how images must be cut for an encoder; changes nothing.

    The record is saved with the encoder. Indexes and exports read it with
    `gsp.data.preprocessing_of`, so that gallery and queries are cut alike.
    `build_encoder(..., preprocessing=...)` adds this layer; in an encoder of
    your own, call it once, on the image or any features.

    Args:
        preprocessing: `gsp.data.Preprocessing`; `TypeError` for another.

    Example:

    ```python
    import keras
    import keras_gsp as gsp

    cut = gsp.data.Preprocessing(32, 36)
    image = keras.Input((32, 32, 3))
    features = gsp.layers.ExpectedPreprocessing(cut)(image)
    encoder = keras.Model(image, keras.layers.GlobalMaxPooling2D()(features))
    assert gsp.data.preprocessing_of(encoder) == cut
    ```
    """

    def __init__(self, preprocessing: Any, **kwargs: Any) -> None:
        # The policy must not cast what passes through.
        super().__init__(autocast=False, **kwargs)
        if isinstance(preprocessing, dict):
            preprocessing = keras.saving.deserialize_keras_object(preprocessing)
        if not hasattr(preprocessing, "crop_fraction"):
            raise TypeError(
                "`preprocessing` must be a `gsp.data.Preprocessing`. "
                f"Received: preprocessing={preprocessing!r}."
            )
        self.preprocessing = preprocessing
