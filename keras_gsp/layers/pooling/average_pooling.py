"""Average of the features that a mask keeps."""

import keras

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.masked_reductions import masked_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class AveragePooling(FeaturePooling):
    """Averages tokens, in float32 at least; the default of `build_encoder`.

    `keras.layers.GlobalAveragePooling1D` gives NaN where all tokens are
    masked; this layer gives zeros.
    """

    def pool(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Returns the mean of the kept features."""
        return masked_mean(features, kept)
