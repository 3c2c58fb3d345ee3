"""Which parts of a metric learner fit together, and how they are saved."""

import keras

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.losses.proxy_similarity import ProxyLoss
from keras_gsp.losses.zero_shot import ZeroShotLoss

_PARTS = ("encoder", "proxies", "regularizer", "memory", "class_embeddings")
_NUMBERS = (
    "regularizer_weight",
    "anchor_weight",
    "in_batch_weight",
    "anchor_decay",
    "seed",
)


def check_parts(
    encoder,
    *,
    proxies,
    regularizer,
    regularizer_weight,
    class_embeddings,
    anchor_weight,
    anchor_decay,
    in_batch_weight,
):
    """Raises `ValueError` for parts or weights that cannot work together."""
    _check_range("regularizer_weight", regularizer_weight, 0.0, 1.0)
    _check_range("anchor_weight", anchor_weight, 0.0, float("inf"))
    _check_range("in_batch_weight", in_batch_weight, 0.0, float("inf"))
    if not 0.0 < anchor_decay <= 1.0:
        raise ValueError(
            "`anchor_decay` must be in (0, 1]. "
            f"Received: anchor_decay={anchor_decay}."
        )
    if regularizer is None:
        return
    if encoder.built and not isinstance(encoder.output, dict):
        raise ValueError(
            "A regularizer needs an encoder that returns a dictionary with "
            '"embedding" and "histogram". Received: an encoder with one '
            "output. Build it with "
            "`GeneralizedSumPooling(return_histogram=True)` or with "
            "`build_encoder(..., histogram=PrototypeHistogram())`."
        )
    if isinstance(regularizer, ZeroShotLoss) and class_embeddings is None:
        raise ValueError(
            "`ZeroShotLoss` needs `class_embeddings`, a `ClassEmbeddings` "
            "layer. Received: class_embeddings=None."
        )
    if isinstance(getattr(regularizer, "pair_loss", None), ProxyLoss):
        if proxies is None:
            raise ValueError(
                "`CrossBatchLoss` with a proxy loss needs `proxies`, a "
                "`ClassProxies` layer. Received: proxies=None."
            )


def check_loss_fits(loss, *, proxies, memory, in_batch_weight):
    """Raises unless the loss can be taken with the learner's parts.

    Raises:
        TypeError: neither a pair loss nor a proxy loss.
        ValueError: a proxy loss without proxies, or with a part that only
            pair losses can use.
    """
    if isinstance(loss, PairLoss):
        return
    if not isinstance(loss, ProxyLoss):
        raise TypeError(
            "`loss` must be a pair loss or a proxy loss of "
            f"`keras_gsp.losses`. Received: loss={loss!r}."
        )
    if proxies is None:
        raise ValueError(
            f"{type(loss).__name__} needs proxies: give MetricLearner "
            "`proxies=ClassProxies(num_classes)`. Received: proxies=None."
        )
    if memory is not None or in_batch_weight > 0.0:
        raise ValueError(
            f"{type(loss).__name__} compares a batch with proxies only; "
            "`memory` and `in_batch_weight` need a pair loss. Received: "
            f"memory={memory!r}, in_batch_weight={in_batch_weight}."
        )


def serialized_parts(learner):
    """Returns a learner's constructor arguments, ready for `get_config`."""
    parts = {
        name: None
        if getattr(learner, name) is None
        else keras.saving.serialize_keras_object(getattr(learner, name))
        for name in _PARTS
    }
    return {**parts, **{name: getattr(learner, name) for name in _NUMBERS}}


def _check_range(name, value, low, high):
    if not low <= value <= high:
        raise ValueError(
            f"`{name}` must be in [{low:g}, {high:g}]. "
            f"Received: {name}={value}."
        )
