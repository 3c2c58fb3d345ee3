"""Record in an encoder how its images must be resized and cropped."""

from typing import Any

import keras

from keras_gsp._configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="keras_gsp")
class ExpectedPreprocessing(ConfiguredLayer, keras.layers.Identity):
    """Records how images are resized and cropped; changes nothing.

    The record is saved with the encoder. Indexes and exports read it, so that
    gallery and queries are prepared alike.
    `build_encoder(..., preprocessing=...)` adds this layer; in another encoder
    call it once, on the image or any features.

    Args:
        preprocessing: `gsp.data.Preprocessing`, or `None`: images as they
            are, whole; `TypeError` for another.
        shorter_side: of whole images, in pixels: larger ones are reduced to
            it. `None`: none is.
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
        is_known = hasattr(preprocessing, "crop_fraction")
        if not (preprocessing is None or is_known):
            raise TypeError(
                "`preprocessing` must be a `gsp.data.Preprocessing`. "
                f"Received: preprocessing={preprocessing!r}."
            )
        self.preprocessing = preprocessing
        self.shorter_side = shorter_side
