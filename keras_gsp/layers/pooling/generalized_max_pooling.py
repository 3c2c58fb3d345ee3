"""Generalized max pooling (GeMax): equal similarity to every feature."""

from typing import Any

from keras import ops

from keras_gsp._checks import check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.precision import full_matmul, unit_roundoff
from keras_gsp.ops.ridge import solve_positive_definite


class GeneralizedMaxPooling(FeaturePooling):
    r"""Pools to the vector whose dot product with each feature is one (GeMax).

    Frequent features count no more than rare ones. The pooled vector
    :math:`\varphi` is the ridge regression of ones on the features F with rows
    :math:`f_j`,

    .. math:: \varphi = \arg\min_\varphi \|F \varphi - 1\|^2
        + \lambda \|\varphi\|^2 = (F^\top F + \lambda I)^{-1} F^\top 1
        = F^\top (F F^\top + \lambda I)^{-1} 1 .

    The form with the smaller matrix is solved by a Cholesky factorization. The
    ridge is increased by the rounding error of the matrix, about 5e-7 of its
    trace. A large ridge gives the direction of average pooling. ONNX and
    LiteRT have no factorization: export it as a SavedModel.

    Args:
        ridge: lambda, positive and finite, in units of squared features.
            Default 1.0, as in the comparison of the GSP paper.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.GeneralizedMaxPooling(ridge=1e-3)
        features = np.random.normal(size=(1, 5, 16))
        similarities = features[0] @ np.array(pooling(features))[0]
        assert np.allclose(similarities, 1.0, atol=0.01)
        ```

    Reference:
        Interferences in Match Kernels, section 4; "GeMax" of Generalized Sum
        Pooling for Metric Learning, whose code inverts the n x n matrix.
    """

    pools_first = True

    def __init__(self, ridge: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(ridge=ridge)
        self.ridge = ridge

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        if kept is not None:
            # A row of zeros changes neither F'F nor F'1.
            features = kept[..., None] * features
        count, channels = features.shape[1], features.shape[2]
        turned = ops.swapaxes(features, 1, 2)
        if count is not None and count < channels:
            gram = full_matmul(features, turned)
            ones = ops.ones_like(features[..., :1])
            shares = self._solve(gram, ones, count)
            return full_matmul(turned, shares)[..., 0]
        gram = full_matmul(turned, features)
        total = ops.sum(features, axis=1)[..., None]
        return self._solve(gram, total, channels)[..., 0]

    def _solve(self, gram, right_hand_side, size):
        identity = ops.eye(size, dtype=gram.dtype)
        # TensorFlow's Cholesky raises for the whole batch; this keeps a NaN
        # in its own image.
        is_finite = ops.all(ops.isfinite(gram), axis=(1, 2), keepdims=True)
        gram = ops.where(is_finite, gram, identity)
        right_hand_side = ops.where(is_finite, right_hand_side, 0.0)
        # Rounding must not make the matrix of huge features indefinite.
        trace = ops.trace(gram, axis1=1, axis2=2)[:, None, None]
        ridge = self.ridge + 4.0 * unit_roundoff(gram) * trace
        solved = solve_positive_definite(
            gram + ridge * identity, right_hand_side
        )
        return ops.where(is_finite, solved, float("nan"))
