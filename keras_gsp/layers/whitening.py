"""PCA whitening and learned whitening of embeddings, in closed form."""

from typing import Any

import numpy as np
from keras import ops

from keras_gsp._checks import check_count, check_interval
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._embeddings import checked_embeddings
from keras_gsp._labels import checked_labels
from keras_gsp._tensor import Tensor
from keras_gsp.ops.normalization import check_normalization, normalize
from keras_gsp.ops.precision import at_least_float32, full_matmul


class Whitening(ConfiguredLayer):
    r"""Whitens embeddings with a linear map that `adapt` fits in closed form.

    The layer computes `normalize((x - mean) @ kernel)`; mean and kernel are
    frozen. With the covariance C of all embeddings, S a covariance to whiten
    and P its inverse square root, `adapt` gives

    - without labels, PCA whitening: S = C; the kernel has the `size`
      directions of largest variance, each divided by its standard deviation;
    - with labels, learned whitening: S is the covariance within classes; the
      kernel is P times the `size` leading eigenvectors of
      :math:`P^\top C P`. Directions in which a class varies count little.

    Shrinkage s replaces S by :math:`(1 - s) S + s\, \mathrm{tr}(S) / d\, I`.
    At s = 1 both are plain PCA: a rotation, then the first `size` columns.

    Args:
        size: size of the output, at least 1 and at most that of the input.
        shrinkage: s, in [0, 1]. Default 0. Above 0 it needs no more samples
            than dimensions, and small variances are not blown up.
        normalization: `"l2"` (default), `"ball"` or `None`; see
            `EmbeddingNormalization`.

    Output shape:
        (batch, size) for embeddings (batch, embedding_size), float32 under
        every mixed policy. Before `adapt` the first `size` coordinates,
        normalized.

    Example:
        ```python
        embeddings = np.random.normal(size=(40, 6))
        whitening = gsp.layers.Whitening(4, shrinkage=0.1)
        whitening.adapt(embeddings, labels=np.arange(40) % 5)
        assert whitening(embeddings).shape == (40, 4)
        ```

    Reference:
        Jegou and Chum, "Negative evidences and co-occurrences in image
        retrieval", ECCV 2012. Learned whitening: Radenovic, Tolias and Chum,
        "Fine-tuning CNN Image Retrieval with No Human Annotation", TPAMI 2018,
        (8) to (10), whose code has no shrinkage and centers by the mean of the
        queries; here it is the mean of all embeddings.
    """

    def __init__(
        self,
        size: int,
        *,
        shrinkage: float = 0.0,
        normalization: str | None = "l2",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        check_count(size=size)
        check_interval("[0, 1]", shrinkage=shrinkage)
        self.size = size
        self.shrinkage = shrinkage
        self.normalization = check_normalization(normalization)

    def build(self, input_shape: tuple) -> None:
        """Creates mean (input_size,) and kernel (input_size, size)."""
        if len(input_shape) != 2 or (input_shape[1] or 0) < self.size:
            raise ValueError(
                "Embeddings must have shape (batch, embedding_size) with at "
                f"least `size` columns. Received: size={self.size}, shape "
                f"{tuple(input_shape)}."
            )
        frozen: dict[str, Any] = {"trainable": False, "autocast": False}
        self.mean = self.add_weight(
            name="mean", shape=input_shape[1:], initializer="zeros", **frozen
        )
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[1], self.size),
            initializer=lambda shape, dtype: ops.eye(*shape, dtype=dtype),
            **frozen,
        )

    def call(self, embeddings: Tensor) -> Tensor:
        embeddings = at_least_float32(embeddings)
        centered = embeddings - ops.cast(self.mean, embeddings.dtype)
        kernel = ops.cast(self.kernel, embeddings.dtype)
        return normalize(full_matmul(centered, kernel), self.normalization)

    def adapt(self, embeddings: Tensor, labels: Tensor | None = None) -> None:
        """Fits mean and kernel to embeddings, in float64.

        Args:
            embeddings: (samples, embedding_size), finite; normalized if those
                of a call are.
            labels: (samples,), numbers or strings, for learned whitening.
                Default `None`: PCA whitening.

        Raises:
            ValueError: arguments that are not so; without shrinkage, too few
                samples or directions without variance; no class of two
                samples.
        """
        rows = checked_embeddings(embeddings).astype("float64")
        if not self.built:
            self.build(rows.shape)
        mean = rows.mean(axis=0)
        total = _covariance(rows - mean, len(rows) - 1)
        if labels is None:
            kernel = self._inverse_root(total, len(rows) - 1, self.size)
        else:
            residuals, rank = _residuals(rows, labels)
            within = _covariance(residuals, rank)
            inverse = self._inverse_root(within, rank, rows.shape[1])
            kernel = inverse @ _leading(inverse.T @ total @ inverse)[1]
        kernel = kernel[:, : self.size]
        # The sign of an eigenvector is arbitrary: the largest entry decides.
        largest = np.abs(kernel).argmax(axis=0)
        kernel = kernel * np.sign(kernel[largest, np.arange(self.size)])
        self.mean.assign(mean)
        self.kernel.assign(kernel)

    def _inverse_root(self, covariance, rank, used):
        """Eigenvectors over root eigenvalues; `used` must have variance."""
        dimensions = len(covariance)
        if not self.shrinkage and rank < dimensions:
            raise ValueError(
                "`shrinkage` must be above 0 for fewer samples (less the mean "
                "of each class, for learned whitening) than dimensions, for "
                f"example 0.1. Received: shrinkage={self.shrinkage}, {rank} "
                f"degrees of freedom for {dimensions} dimensions."
            )
        mean_variance = np.trace(covariance) / dimensions
        # Those of the shrunk covariance too, but also at a shrinkage of 1.
        variances, directions = _leading(covariance)
        variances = (1.0 - self.shrinkage) * variances
        variances += self.shrinkage * mean_variance
        # Smaller deviations than float32 resolves beside the largest one.
        smallest = np.finfo("float32").eps ** 2 * variances[0]
        if not variances[used - 1] > smallest:
            raise ValueError(
                f"`embeddings` must vary in at least {used} directions. "
                f"Received: {int((variances > smallest).sum())}. Set "
                "`shrinkage` above 0 or, for PCA whitening, lower `size`."
            )
        return directions / np.sqrt(np.maximum(variances, smallest))


def _covariance(rows, count):
    return rows.T @ rows / max(count, 1)


def _leading(matrix):
    """Eigenvalues and eigenvectors, the largest first."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors[:, ::-1]


def _residuals(rows, labels):
    """Deviations within classes, and their degrees of freedom."""
    names, classes = np.unique(
        checked_labels(labels, len(rows)), return_inverse=True
    )
    if not 1 < len(names) < len(rows):
        raise ValueError(
            "`labels` must have two classes or more, one of them with two "
            f"samples or more. Received: num_classes={len(names)} for "
            f"{len(rows)} samples. Without labels, whitening is that of PCA."
        )
    sums = np.zeros((len(names), rows.shape[1]))
    np.add.at(sums, classes, rows)
    means = sums / np.bincount(classes)[:, None]
    return rows - means[classes], len(rows) - len(names)
