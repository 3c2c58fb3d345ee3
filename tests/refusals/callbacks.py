"""What callbacks refuse."""

import keras
import numpy as np

from keras_gsp import callbacks, losses
from tests.callbacks.test_chance_constrained import (
    IMAGES,
    LABELS,
    build_learner,
)
from tests.refusals._rows import out_of_range, rows

NCA = losses.ProxyNCALoss()


def alternating(pool=(), **arguments):
    return callbacks.ChanceConstrainedProgramming(pool, **arguments)


def plain():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])


def fit(callback, make=build_learner, loss=None):
    """No step is taken."""
    model = make()
    loss = loss or losses.ContrastiveLoss()
    model.compile("sgd", loss=loss, run_eagerly=True)
    before = model.get_weights()
    try:
        model.fit(IMAGES, LABELS, callbacks=[callback], verbose=0)
    finally:
        np.testing.assert_equal(model.get_weights(), before)


def pooled(pool=(IMAGES, LABELS), make=build_learner, loss=None, **options):
    fit(alternating(pool, pool_size=4, **options), make, loss)


def evaluation(dataset=(IMAGES, LABELS), **options):
    return callbacks.RetrievalEvaluation(dataset, **options)


def evaluated(dataset=(IMAGES, LABELS), **options):
    fit(evaluation(dataset, **options))


def endless():
    import tensorflow as tf

    evaluation(tf.data.Dataset.from_tensors((IMAGES, LABELS)).repeat())


ROWS = [
    *out_of_range(
        alternating,
        {
            "pool_size": [0],
            "patience": [0],
            "validation_freq": [0],
            "warmup_epochs": [-1],
            "pool": [3],
        },
    ),
    (alternating, (iter([1]),), "no iterator.*pool=<list_iterator"),
    *rows(
        pooled,
        (((IMAGES[:16], LABELS[:16]),), "none of 1 classes: 2"),
        (((IMAGES, LABELS - 1),), r"\[0, num_classes=3\).*-1"),
        (((IMAGES * np.nan, LABELS),), "of the pool` must be finite"),
        ({"make": lambda: build_learner(proxies=None)}, "proxies=None"),
        ({"make": lambda: build_learner(anchor_weight=None)}, "_weight=None"),
        ({"make": plain, "loss": "mse"}, "Received: a Sequential"),
        ({"loss": NCA, "warmup_epochs": 1}, "`warmup_epochs`.*warmup_epochs=1"),
    ),
    (endless, (), "infinite"),
    *rows(
        evaluation,
        ({"batch_size": 0.5}, "batch_size=0.5"),
        (((IMAGES, LABELS[:3]),), "24 images, 3 labels"),
        (((IMAGES, LABELS, LABELS),), "a tuple of 3"),
        ({"gallery": 3}, "`gallery`.*int"),
    ),
    *rows(
        evaluated,
        (((IMAGES, np.arange(24)),), "24 images of 24 classes"),
        ({"gallery": (IMAGES, LABELS + 4)}, "no class in c"),
    ),
]
