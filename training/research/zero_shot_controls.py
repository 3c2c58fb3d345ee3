"""Controls of the zero-shot regularizer, for the study `collage-zsr`.

If ZSR helps because it predicts the embeddings of classes that it was not fitted
to, neither control does as well: one predicts the classes that it was fitted to,
one only classifies.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops.ridge import solve_positive_definite
from training.recipes import learner


class SameHalfLoss(gsp.losses.ZeroShotLoss):
    """`ZeroShotLoss` that fits and predicts in the same half of the batch."""

    def training_loss(self, parts: Any) -> Any:
        """Returns the regularizer of a training step, a scalar.

        Of each half K (K + ridge I)^-1 Y predicts, K = Z Z^T.
        """
        table, halves = parts.class_embeddings.embeddings, parts.first_half
        targets = ops.take(table, parts.labels, axis=0)
        is_shared = halves[:, None] == halves[None, :]
        kernel = ops.matmul(parts.histograms, ops.transpose(parts.histograms))
        kernel = ops.where(is_shared, kernel, 0.0)
        ridge = self.ridge * ops.eye(ops.shape(kernel)[0], dtype=kernel.dtype)
        solved = solve_positive_definite(kernel + ridge, targets)
        predicted = ops.matmul(kernel, solved)
        return _cross_entropy(self.scale, predicted, table, parts.labels)


class PooledSoftmaxLoss(gsp.losses.ZeroShotLoss):
    """A softmax of the pooled vector on all class embeddings."""

    def training_loss(self, parts: Any) -> Any:
        """Returns the regularizer of a training step, a scalar."""
        table = parts.class_embeddings.embeddings
        return _cross_entropy(self.scale, parts.pooled, table, parts.labels)


CONTROLS = {"same-half": SameHalfLoss, "softmax": PooledSoftmaxLoss}


def _cross_entropy(scale, vectors, table, labels):
    logits = scale * ops.matmul(vectors, ops.transpose(table))
    losses = keras.losses.sparse_categorical_crossentropy(
        labels, logits, from_logits=True
    )
    return ops.mean(losses)


@contextlib.contextmanager
def controlled(name: str) -> Iterator[None]:
    """Trains recipes of ZSR with a control in its place; "" changes nothing."""
    if not name:
        yield
        return
    before = learner.build_regularizer

    def build(recipe):
        arguments = {"ridge": 0.05, "scale": 1.0} | recipe.regularizer_arguments
        ridge, scale = arguments["ridge"], arguments["scale"]
        return CONTROLS[name](ridge, scale, seed=recipe.seed)

    learner.build_regularizer = build
    try:
        yield
    finally:
        learner.build_regularizer = before
