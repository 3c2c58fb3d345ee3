"""The regulariser's part of a metric learner's loss."""

from keras import ops

from keras_gsp.losses.proxy_similarity import ProxyLoss
from keras_gsp.losses.zero_shot import ZeroShotLoss
from keras_gsp.ops.halves import class_disjoint_halves


def regularizer_loss(learner, labels, histograms, embeddings):
    """Returns the zero-shot or cross-batch loss of a batch, a scalar.

    The batch is split with the learner's own seed generator, whose state
    belongs to the learner's variables: a resumed run splits as the
    uninterrupted one would have.

    Args:
        learner: the `MetricLearner`.
        labels: (batch,).
        histograms: (batch, num_prototypes).
        embeddings: (batch, embedding_size).
    """
    regularizer = learner.regularizer
    first_half = class_disjoint_halves(labels, learner.halves_seed)
    if isinstance(regularizer, ZeroShotLoss):
        return regularizer.compute(
            labels,
            histograms,
            learner.class_embeddings.embeddings,
            first_half=first_half,
        )
    if isinstance(regularizer.pair_loss, ProxyLoss):
        expressed = regularizer.express(
            labels, histograms, embeddings, first_half=first_half
        )
        similarities = learner.proxies(expressed)
        return ops.mean(regularizer.pair_loss.call(labels, similarities))
    return regularizer.compute(
        labels, histograms, embeddings, first_half=first_half
    )
