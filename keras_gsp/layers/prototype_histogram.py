"""Histogram of an image over learned prototypes."""

from typing import Any

import keras
from keras import ops

from keras_gsp.ops.arguments import check_count, check_positive
from keras_gsp.ops.covering import prototype_cover
from keras_gsp.ops.prototype_assignment import check_affinity, soft_histogram
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class PrototypeHistogram(keras.layers.Layer):
    """Says how much of an image each learned prototype stands for.

    A 1x1 convolution without bias, a softmax over its `num_prototypes`
    outputs and an average over the image:

    `z_i = mean_j softmax_i(inverse_temperature * s_ij)`,

    with `s_ij` the dot product of prototype i and feature j, or minus their
    Euclidean distance (not squared). This is what the cross-batch
    regularizer takes when the pooling is not GSP, whose own histogram with
    `transport_ratio=1` equals this one with `affinity="l2"` on features and
    prototypes inside the unit ball. Features are not normalized here: put
    `EmbeddingNormalization("ball")` before it, as `build_encoder` does, for
    features of any length (of norm 20 the softmax saturates). The softmax
    runs in float32 at least, and so does what comes out.

    Args:
        num_prototypes: int, at least 1. Default 64.
        inverse_temperature: float, positive. Default 10, the paper's.
        affinity: `"dot"` (default), as the paper prints it, or `"l2"`. Only
            with `"l2"`, or prototypes of equal norm, is the best match the
            nearest prototype; Lemma 2.1 of the paper needs that.
        prototype_initializer: default `"glorot_uniform"`.
        prototype_regularizer: default none.
        prototype_constraint: default none.
        **kwargs: of `keras.layers.Layer`.

    Call arguments:
        features: see input shape.
        mask: (batch, tokens) or (batch, height, width), boolean, which
            features count. Keras passes the mask of a sequence on its own.

    Input shape:
        (batch, height, width, channels) or (batch, tokens, channels); all
        but channels may be unknown.

    Output shape:
        (batch, num_prototypes). Rows sum to 1; a row whose features are all
        masked is zero.

    Raises:
        ValueError: an argument outside its range, channels unknown, or an
            input of another rank.

    Example:
        ```python
        layer = gsp.layers.PrototypeHistogram(8)
        features = np.random.default_rng(0).normal(size=(2, 7, 7, 16))
        histograms = layer(features)  # (2, 8), rows sum to 1
        ```

    Reference:
        XML, (2.4).
    """

    def __init__(
        self,
        num_prototypes: int = 64,
        inverse_temperature: float = 10.0,
        *,
        affinity: str = "dot",
        prototype_initializer: Any = "glorot_uniform",
        prototype_regularizer: Any = None,
        prototype_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_prototypes=num_prototypes)
        check_positive(inverse_temperature=inverse_temperature)
        self.num_prototypes = num_prototypes
        self.inverse_temperature = inverse_temperature
        self.affinity = check_affinity(affinity)
        self.prototype_initializer = keras.initializers.get(
            prototype_initializer
        )
        self.prototype_regularizer = keras.regularizers.get(
            prototype_regularizer
        )
        self.prototype_constraint = keras.constraints.get(prototype_constraint)
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        """Creates the prototypes, (num_prototypes, channels)."""
        if len(input_shape) not in (3, 4):
            raise ValueError(
                "`features` must have shape (batch, height, width, channels) "
                "or (batch, tokens, channels). Received: shape "
                f"{tuple(input_shape)}."
            )
        if input_shape[-1] is None:
            raise ValueError(
                "The channels of `features` must be known. Received: shape "
                f"{tuple(input_shape)}."
            )
        self.prototypes = self.add_weight(
            name="prototypes",
            shape=(self.num_prototypes, input_shape[-1]),
            initializer=self.prototype_initializer,
            regularizer=self.prototype_regularizer,
            constraint=self.prototype_constraint,
            autocast=False,
        )

    def call(self, features: Tensor, mask: Tensor | None = None) -> Any:
        """Returns the histograms of a batch of feature maps."""
        return soft_histogram(
            features,
            self.prototypes,
            inverse_temperature=self.inverse_temperature,
            affinity=self.affinity,
            mask=mask,
        )

    def adapt(
        self, features: Any, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Sets the prototypes to features that cover the data.

        Greedy k-center on the unit ball, starting with the feature farthest
        from the mean; see `GeneralizedSumPooling.adapt`.

        Args:
            features: (batch, height, width, channels) or (batch, tokens,
                channels), as the layer will see them.
            max_features: number of local features looked at, drawn without
                replacement, at least `num_prototypes`. Default 20,000.
            seed: integer seed of that draw. Default 0.

        Raises:
            ValueError: fewer local features than prototypes.
        """
        features = ops.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        self.prototypes.assign(
            prototype_cover(
                features,
                self.num_prototypes,
                max_features=max_features,
                seed=seed,
            )
        )

    def compute_output_shape(self, input_shape: tuple) -> Any:
        """Returns (batch, num_prototypes)."""
        return input_shape[0], self.num_prototypes

    def compute_output_spec(
        self, features: Tensor, mask: Tensor | None = None
    ) -> Any:
        """Returns the output's shape, and float32 at least as its dtype."""
        is_double = self.compute_dtype == "float64"
        return keras.KerasTensor(
            self.compute_output_shape(features.shape),
            dtype="float64" if is_double else "float32",
        )

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> Any:
        """Returns `None`: the features have been averaged away."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_prototypes": self.num_prototypes,
            "inverse_temperature": self.inverse_temperature,
            "affinity": self.affinity,
            "prototype_initializer": keras.initializers.serialize(
                self.prototype_initializer
            ),
            "prototype_regularizer": keras.regularizers.serialize(
                self.prototype_regularizer
            ),
            "prototype_constraint": keras.constraints.serialize(
                self.prototype_constraint
            ),
        }
