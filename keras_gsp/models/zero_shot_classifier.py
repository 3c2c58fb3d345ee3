"""Predicts classes without images from vectors that describe them."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_positive
from keras_gsp._labeled_batches import batches_of
from keras_gsp._labels import label_codes
from keras_gsp._processes import predictor
from keras_gsp._tensor import Tensor

BATCH_SIZE = 64


class ZeroShotClassifier:
    r"""Predicts classes that no image was seen of, from vectors of classes.

    A class vector holds attributes, or an embedding of the class's name. A
    ridge regression from the histograms z of images to the vectors u of their
    classes is fitted on classes with images,

    .. math:: V = \arg\min_V \sum_i |V z_i - u_{y_i}|^2 + \epsilon |V|^2,

    and predicts for an image the new class whose vector has the largest
    cosine with V z. It is the regression that `gsp.losses.ZeroShotLoss`
    trains prototypes for.

    Args:
        encoder: model from images to a dictionary with `"histogram"`, as
            `GeneralizedSumPooling(return_histogram=True)` gives, or to
            embeddings, which are used in its place.
        ridge: epsilon, positive.

    Raises:
        ValueError: arguments of another size or number.
        RuntimeError: `predict` before `fit`.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    rng = np.random.default_rng(0)
    attributes = rng.normal(size=(5, 3))
    labels = np.repeat(np.arange(5), 8)
    images = attributes[labels] + 0.1 * rng.normal(size=(40, 3))
    encoder = keras.Sequential([keras.Input((3,)), keras.layers.Identity()])
    classifier = gsp.models.ZeroShotClassifier(encoder)
    seen = labels < 3
    classifier.fit(images[seen], labels[seen], attributes[:3])
    found = classifier.predict(images[~seen], attributes[3:])
    assert (found == labels[~seen] - 3).mean() > 0.9
    ```

    Reference:
        Generalized Sum Pooling for Metric Learning, section 4.3.
    """

    def __init__(self, encoder: keras.Model, *, ridge: float = 0.05) -> None:
        check_positive(ridge=ridge)
        self.encoder = encoder
        self.ridge = ridge
        self.kernel: np.ndarray | None = None

    def fit(self, images: Any, labels: Any, class_vectors: Tensor) -> Self:
        """Fits the regression to images of seen classes.

        `labels` (images,) are numbers or strings; `class_vectors` (classes,
        size) has a row for each class, in the order of the sorted labels.
        """
        codes, classes = label_codes(labels)
        vectors = np.asarray(ops.convert_to_numpy(class_vectors), "float32")
        if vectors.ndim != 2 or len(vectors) != len(classes):
            raise ValueError(
                "`class_vectors` must have one row for each class of `labels`. "
                f"Received: shape {vectors.shape} for {len(classes)} classes."
            )
        if len(images) != len(codes):
            raise ValueError(
                "`images` and `labels` must have the same length. "
                f"Received: {len(images)} and {len(codes)}."
            )
        histograms = self._histograms(images)
        size = histograms.shape[1]
        # The primal form of `gsp.ops`' regression, in float64 on every backend:
        # here are more images than prototypes.
        gram = histograms.T @ histograms + self.ridge * np.eye(size)
        self.kernel = np.linalg.solve(gram, histograms.T @ vectors[codes])
        return self

    def predict(self, images: Any, new_vectors: Tensor) -> np.ndarray:
        """Returns the row of the most similar new class vector, (images,)."""
        return self.similarities(images, new_vectors).argmax(axis=1)

    def similarities(self, images: Any, new_vectors: Tensor) -> np.ndarray:
        """Returns cosines, (images, new classes), in [-1, 1]."""
        if self.kernel is None:
            raise RuntimeError("Call `fit` before `predict`.")
        vectors = np.asarray(ops.convert_to_numpy(new_vectors), "float64")
        if vectors.ndim != 2 or vectors.shape[1] != self.kernel.shape[1]:
            raise ValueError(
                "`new_vectors` must be as the vectors of `fit`, (classes, "
                f"{self.kernel.shape[1]}). Received: shape {vectors.shape}."
            )
        unit = keras.utils.normalize
        return unit(self._histograms(images) @ self.kernel) @ unit(vectors).T

    def _histograms(self, images):
        predict = predictor(self.encoder)
        rows = []
        for (part,) in batches_of((images,), BATCH_SIZE):
            outputs = predict(part)
            if isinstance(outputs, dict):
                outputs = outputs.get("histogram", outputs.get("embedding"))
            rows.append(np.asarray(outputs, "float64")[: len(part)])
        return np.concatenate(rows)
