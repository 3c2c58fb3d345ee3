"""Zero-shot regularizer (ZSR)."""

from keras import ops

from keras_gsp._checks import check_integer, check_positive, check_same_size
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.losses.metric_loss import Regularizer, StepParts
from keras_gsp.ops.halves import given_or_drawn_halves
from keras_gsp.ops.labels import class_indices, rows_of
from keras_gsp.ops.precision import at_least_float32, exact_mean, full_matmul
from keras_gsp.ops.ridge import cross_half_prediction


class ZeroShotLoss(Regularizer):
    """Predicts the class embeddings of unseen classes from histograms (ZSR).

    The batch is split into two halves without a common class. A ridge
    regression from histograms to class embeddings is fitted to each half in
    closed form and applied to the other. A softmax cross-entropy compares the
    predictions with the embeddings of all classes:

    `loss = mean_b -log softmax_c(scale * predicted_b . upsilon_c)[y_b]`,

    one mean over the samples of both halves; vectors are not normalized. The
    paper prints the sum of the two half means, twice this for equal halves, and
    counts the true class twice in the softmax of (4.4); its algorithm 4 and its
    code do neither, and their weight of the regularizer, 0.1, refers to this
    mean.

    `MetricLearner(regularizer=ZeroShotLoss())` calls `compute` with the
    histograms of its encoder and its `ClassEmbeddings`.

    Args:
        ridge: eps of the regression, positive, once for each half. Default
            0.05, the paper's.
        scale: multiplies the logits, positive. Default 1, as printed. The
            reference code has 9.5, with which the printed gains were made and
            the regularizer has about twice the share of the gradient.
            Neither is shown to be the better one: search it.
        seed: int (the same halves in every call) or `None` (new halves, from
            the global generator of Keras); not used with `first_half`.

    Example:
        ```python
        rng = np.random.default_rng(0)
        loss = gsp.losses.ZeroShotLoss(seed=0)
        value = loss.compute(
            labels=np.array([0, 0, 7, 7, 3, 3]),
            histograms=rng.dirichlet(np.ones(16), size=6),
            class_embeddings=rng.normal(size=(10, 4)),
        )
        ```

    Reference:
        GSP, section 4.3, (4.4) and algorithm 4.
    """

    needs = ("histograms", "first_half", "class_embeddings")

    def __init__(
        self, ridge: float = 0.05, scale: float = 1.0, seed: int | None = None
    ) -> None:
        check_positive(ridge=ridge, scale=scale)
        self.ridge = ridge
        self.scale = scale
        check_integer(is_optional=True, seed=seed)
        self.seed = seed

    def compute(
        self,
        labels: Tensor,
        histograms: Tensor,
        class_embeddings: Tensor,
        first_half: Tensor | None = None,
    ) -> Tensor:
        """Returns the regularizer of a batch, a scalar.

        Args:
            labels: (batch,) or (batch, 1), integers or whole floats in
                [0, num_classes).
            histograms: (batch, num_prototypes), rows that sum to 1.
            class_embeddings: (num_classes, embedding_size), all classes.
            first_half: (batch,), boolean, the samples of the first half; no
                class should be in both. `None`: drawn by
                `class_disjoint_halves`, whose errors apply.

        Raises:
            TypeError: labels that are strings, `first_half` not boolean.
            ValueError: labels outside the table, wrong shapes. In a TensorFlow
                graph wrong values are a `tf.errors.InvalidArgumentError`; under
                XLA a label outside the table makes the loss NaN.
        """
        histograms = at_least_float32(histograms)
        table = ops.cast(class_embeddings, histograms.dtype)
        indices = class_indices(batch_labels(labels), table.shape[0])
        check_same_size(indices, histograms, ("labels", "histograms"))
        first_half = given_or_drawn_halves(indices, first_half, self.seed)
        predicted = cross_half_prediction(
            histograms, rows_of(table, indices), first_half, ridge=self.ridge
        )
        logits = self.scale * full_matmul(predicted, ops.transpose(table))
        log_probabilities = ops.log_softmax(logits, axis=-1)
        rows = ops.maximum(indices, 0)[:, None]
        return -exact_mean(ops.take_along_axis(log_probabilities, rows, axis=1))

    def training_loss(self, parts: StepParts) -> Tensor:
        return self.compute(
            parts.labels,
            parts.histograms,
            parts.class_embeddings.embeddings,
            first_half=parts.first_half,
        )
