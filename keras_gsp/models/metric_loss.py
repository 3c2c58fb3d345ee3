"""The metric part of a learner's loss: pairs, proxies, memory."""

from keras import ops

from keras_gsp.losses.pairwise import PairLoss


def metric_loss(learner, labels, embeddings):
    """Returns the training loss of a batch without its regulariser, a scalar.

    Args:
        learner: the compiled `MetricLearner`.
        labels: (batch,).
        embeddings: (batch, embedding_size).
    """
    if not isinstance(learner.loss, PairLoss):
        return _proxy_loss(learner, labels, embeddings)
    if learner.proxies is None and learner.memory is None:
        return _loss_within(learner, labels, embeddings)
    terms = []
    if learner.in_batch_weight > 0.0:
        within = _loss_within(learner, labels, embeddings)
        terms.append(learner.in_batch_weight * within)
    if learner.proxies is not None:
        terms.append(_loss_against_proxies(learner, labels, embeddings))
    if learner.memory is not None:
        terms.append(_loss_against_memory(learner, labels, embeddings))
    return sum(terms)


def validation_loss(learner, labels, embeddings):
    """Returns the loss outside training: pairs of the batch, or proxies."""
    if isinstance(learner.loss, PairLoss):
        return _loss_within(learner, labels, embeddings)
    return _proxy_loss(learner, labels, embeddings)


def _loss_within(learner, labels, embeddings):
    return ops.mean(learner.loss.call(labels, embeddings))


def _proxy_loss(learner, labels, embeddings):
    return ops.mean(learner.loss.call(labels, learner.proxies(embeddings)))


def _loss_against_proxies(learner, labels, embeddings):
    """The batch against the proxies, or within itself during warm-up."""

    def against():
        return learner.loss.between(
            labels,
            embeddings,
            learner.proxies.proxy_labels,
            learner.proxies.flat_proxies(),
        )

    if learner.progress is None:
        return against()
    return ops.cond(
        ops.not_equal(learner.progress.is_warming_up, 0),
        lambda: _loss_within(learner, labels, embeddings),
        against,
    )


def _loss_against_memory(learner, labels, embeddings):
    """The batch against the memory, or within itself during warm-up."""
    reference_labels, references, excluded = learner.memory(
        embeddings, labels, training=True
    )
    against = learner.loss.between(
        labels, embeddings, reference_labels, references, excluded=excluded
    )
    if learner.memory.warmup_steps == 0:
        return against
    within = _loss_within(learner, labels, embeddings)
    return ops.where(learner.memory.is_warm, against, within)
