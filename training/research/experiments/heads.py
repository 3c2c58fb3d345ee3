"""Heads on the features of a frozen network, trained at the best rate."""

from typing import Any

import keras
import numpy as np

import keras_gsp as gsp

SIDES = "train", "validation", "test"
EVALUATIONS = 4


def scores(embeddings: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Scores of l2-normalized embeddings, for each query too."""
    unit = keras.utils.normalize(np.asarray(embeddings, "float32"))
    return gsp.metrics.retrieval_scores(unit, labels, per_query=True)


def mobilenet(side: int, weights: Any, width: float = 1.0) -> keras.Model:
    """Feature maps of MobileNetV2; at random weights without a file."""
    network = keras.applications.MobileNetV2(
        (side, side, 3), alpha=width, include_top=False, weights=None
    )
    if weights is not None:
        network.load_weights(weights)
    return network


def head(shape: tuple, pooling: Any, size: int | None = 128) -> keras.Model:
    """An encoder of feature maps of a shape, without a projection for None."""
    maps = keras.Input(shape)
    return gsp.models.build_encoder(
        keras.Model(maps, maps),
        embedding_size=size and min(size, shape[-1]),
        pooling=pooling,
    )


def best_head(
    encoder: Any,
    maps: dict[str, np.ndarray],
    labels: dict[str, np.ndarray],
    loss: Any,
    *,
    rates: tuple[float, ...],
    steps: int,
    classes_per_batch: int = 8,
    seed: int = 0,
) -> str:
    """Trains an encoder of feature maps, by side, at each rate in turn.

    Leaves it with the weights that score best on validation classes, those
    before the first step included, and returns their rate.
    """
    learner = gsp.models.MetricLearner(encoder, seed=seed)
    optimizer = keras.optimizers.AdamW(weight_decay=1e-4)
    optimizer.build(learner.trainable_variables)
    learner.compile(optimizer, loss=loss)
    start = learner.get_weights()
    state = [np.array(variable) for variable in optimizer.variables]
    sampler = gsp.data.ClassBalancedSampler(
        labels["train"],
        classes_per_batch=min(classes_per_batch, len({*labels["train"]})),
        samples_per_class=4,
        seed=seed,
    )
    every = max(1, steps // EVALUATIONS)
    best: Any = (-1.0, None, "")
    for rate in rates:
        learner.set_weights(start)
        for variable, value in zip(optimizer.variables, state, strict=True):
            variable.assign(value)
        schedule = keras.optimizers.schedules.CosineDecay(rate, steps)
        for step in range(steps + 1):
            if step % every == 0:
                rows = encoder.predict(maps["validation"], 128, verbose=0)
                score = scores(rows, labels["validation"])["map_at_r"]
                if score > best[0]:
                    best = score, encoder.get_weights(), f"{rate:g}"
            optimizer.learning_rate = float(schedule(step))
            rows = sampler[step]
            learner.train_on_batch(maps["train"][rows], labels["train"][rows])
    encoder.set_weights(best[1])
    return best[2]
