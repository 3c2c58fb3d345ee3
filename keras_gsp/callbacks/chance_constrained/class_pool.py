"""A few embedded samples of every class, from which proxies are chosen."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_gsp._labeled_batches import batches_of
from keras_gsp._labels import host_array

BATCH_SIZE = 64
# Reading of endless data stops after this many samples that no class needs,
# or 20 a class.
FRUITLESS_SAMPLES = 10_000


def check_pool(pool: Any) -> Any:
    """Returns a pool; `TypeError` unless it can be read several times."""
    is_iterable = hasattr(pool, "__iter__") and not hasattr(pool, "__next__")
    is_known = isinstance(pool, keras.utils.PyDataset) or callable(pool)
    if isinstance(pool, str) or not (is_iterable or is_known):
        raise TypeError(
            "`pool` must be (images, labels) batches that can be read again, "
            "thus no iterator; a tuple of two arrays; or a function (classes, "
            f"problem) that returns one of these. Received: pool={pool!r}."
        )
    return pool


def pool_batches(
    pool: Any, classes: np.ndarray, *, problem: int, seed: int
) -> Iterator[Any]:
    """Yields the (images, labels) batches of a pool for `classes` once."""
    if callable(pool) and not isinstance(pool, keras.utils.PyDataset):
        pool = check_pool(pool(classes, problem))
    order = None
    if isinstance(pool, tuple):
        pool = tuple(map(host_array, pool))
        order = np.random.default_rng([seed, problem]).permutation(len(pool[1]))
    yield from batches_of(pool, BATCH_SIZE, order)


def embed_class_pool(
    draw: Callable[[np.ndarray], Any],
    embed: Callable[[np.ndarray], np.ndarray],
    *,
    num_classes: int,
    pool_size: int,
    min_size: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Embeds the first `pool_size` samples of each class in a data set.

    `draw` maps an int array of classes to (images, labels) batches; while a
    class has fewer than `min_size` samples, it is called again, for another
    augmentation of the same images, unless that finds nothing new. Returns
    embeddings (num_classes, pool_size, size), float32, and booleans
    (num_classes, pool_size), False for empty places.
    """
    counts = np.zeros(num_classes, "int64")
    rows, waiting, blocks = [], [], []
    for image, label in _wanted(draw, counts, pool_size, min_size):
        rows.append((label, counts[label] - 1))
        waiting.append(image)
        if len(waiting) == BATCH_SIZE:
            blocks.append(embed(np.stack(waiting)))
            waiting.clear()
    if waiting:
        missing = BATCH_SIZE - len(waiting)
        filled = np.stack(waiting + waiting[-1:] * missing)
        blocks.append(embed(filled)[: len(waiting)])
    embeddings = np.concatenate(blocks).astype("float32")
    if not np.isfinite(embeddings).all():
        raise ValueError(
            "The embeddings of the pool must be finite. Received: NaN or "
            "infinity; the training has diverged."
        )
    pool = np.zeros((num_classes, pool_size, embeddings.shape[1]), "float32")
    pool[tuple(np.transpose(rows))] = embeddings
    return pool, np.arange(pool_size) < counts[:, None]


def _wanted(draw, counts, pool_size, min_size):
    """Yields (image, label) of the pool's samples, and counts them."""
    while True:
        before = counts.sum()
        fruitless = 0
        limit = max(FRUITLESS_SAMPLES, 20 * len(counts))
        for batch in draw(np.flatnonzero(counts < pool_size)):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise TypeError(
                    "`pool` must yield (images, labels) batches. "
                    f"Received: {type(batch).__name__}."
                )
            images, labels = map(host_array, batch)
            labels = _checked_labels(labels, len(counts))
            fruitless += len(labels)
            for image, label in zip(images, labels, strict=True):
                if counts[label] < pool_size:
                    counts[label] += 1
                    fruitless = 0
                    yield image, label
            if (counts == pool_size).all() or fruitless > limit:
                break
        if not counts.all():
            absent = np.flatnonzero(counts == 0)
            listed = ", ".join(map(str, absent[:10]))
            more = ", ..." if len(absent) > 10 else ""
            raise ValueError(
                "`pool` must hold samples of every class. Received: none of "
                f"{len(absent)} classes: {listed}{more}."
            )
        if counts.min() >= min_size or counts.sum() == before:
            return


def _checked_labels(labels, num_classes):
    if labels.dtype.kind not in "iuf" or labels.size != len(labels):
        raise ValueError(
            "The labels of `pool` must be whole numbers, one class for each "
            "sample; of one-hot labels take the argmax. Received: "
            f"{labels.dtype} of shape {labels.shape}."
        )
    labels = labels.reshape(-1)
    is_right = (labels >= 0) & (labels < num_classes) & (labels % 1 == 0)
    if not is_right.all():
        raise ValueError(
            "The labels of `pool` must be whole numbers in [0, num_classes="
            f"{num_classes}), as the proxies are. Received: "
            f"{labels[~is_right][0]}."
        )
    return labels.astype("int64")
