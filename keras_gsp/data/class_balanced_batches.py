"""Batches of P classes with K samples each, a function of seed and step."""

import warnings
from typing import Any

import numpy as np

from keras_gsp.data.untuned import untuned
from keras_gsp.embeddings.label_codes import as_host_array, checked_labels
from keras_gsp.ops.arguments import check_count, check_integer
from keras_gsp.ops.tensor import Tensor


def class_table(labels: Tensor) -> tuple[Any, Any]:
    """Sorts items by class, keeping their order within a class.

    Returns:
        `order` (items,), int64, positions in `labels`, class after class, and
        `counts` (classes,), int64, how many of them each class has.
    """
    labels = as_host_array(labels, "labels")
    if labels.ndim == 0 or len(labels) == 0:
        raise ValueError(
            "`labels` must hold the class of at least one item. "
            f"Received: shape {labels.shape}."
        )
    labels = checked_labels(labels, len(labels))
    _, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    order = np.argsort(codes.reshape(-1), kind="stable")
    return order.astype("int64"), counts.astype("int64")


# A named generator draws the same bits on every machine.
GENERATOR = "philox"


def class_balanced_batches(
    labels: Tensor,
    *,
    classes_per_batch: int,
    samples_per_class: int,
    seed: int = 0,
    first_step: int = 0,
    neighbors: Any = None,
) -> Any:
    """Returns an endless data set of index vectors, P classes x K samples.

    Metric losses need pairs of one class in every batch; shuffled batches of
    thousands of classes have almost none. Each cycle takes the classes in a
    new random order, each once; if P does not divide their number, the
    cycle's first classes fill its last batch. No class is twice in a batch.
    The K samples of a class are drawn without replacement; a class with fewer
    than K repeats them in order from a random start. A class of one item makes
    no pair and is left out, with a warning, unless K is 1.

    Batch number `step` depends on `seed` and `step` alone: `first_step`
    resumes a run exactly.

    Args:
        labels: (items,) or (items, 1), the class of each item: numbers or
            strings.
        classes_per_batch: P, at least 1, at most the number of classes.
        samples_per_class: K, at least 1.
        seed: an integer; equal seeds give equal batches. Default 0.
        first_step: number of batches to skip, at least 0. Default 0.
        neighbors: the classes that each class is confused with: an integer
            array (classes, n), numbers of the sorted classes, -1 for none; or
            an object with a method `at(step)` that returns one, such as
            `gsp.callbacks.HardClasses`. Half of a batch's classes are then
            drawn at random, and each of these brings one of its neighbors, at
            random, as long as it has one that is not in the batch; random
            classes fill what is left. Default `None`: all at random.

    Returns:
        An infinite `tf.data.Dataset` of int64 vectors (P * K,), positions in
        `labels`; the K samples of a class are neighbors.

    Raises:
        TypeError: labels that are neither numbers nor strings.
        ValueError: no labels, another shape, fewer classes than P, P or K
            below 1, `first_step` below 0, a number that is no integer;
            neighbors of another number of classes.

    Example:

    ```python
    import numpy as np
    import tensorflow as tf
    import keras_gsp as gsp

    images = np.random.rand(60, 8, 8, 3).astype("float32")
    labels = np.repeat(np.arange(12), 5)
    indices = gsp.data.class_balanced_batches(
        labels, classes_per_batch=4, samples_per_class=2, seed=1
    )
    batches = indices.map(
        lambda rows: (tf.gather(images, rows), tf.gather(labels, rows))
    )
    ```
    """
    import tensorflow as tf

    order, counts = class_table(labels)
    check_count(
        classes_per_batch=classes_per_batch, samples_per_class=samples_per_class
    )
    if samples_per_class > 1 and neighbors is None:
        order, counts = _with_pairs(order, counts)
    num_classes = len(counts)
    check_integer(least=0, first_step=first_step)
    check_integer(seed=seed)
    if num_classes < classes_per_batch:
        raise ValueError(
            "`labels` must have at least `classes_per_batch` classes, of two "
            f"images or more. Received: {num_classes} classes and "
            f"classes_per_batch={classes_per_batch}."
        )
    if neighbors is not None:
        size = classes_per_batch, samples_per_class
        steps = seed, first_step
        return _confusable_batches(order, counts, neighbors, size, *steps)
    order, counts = tf.constant(order), tf.constant(counts)
    offsets = tf.cumsum(counts, exclusive=True)
    steps_per_cycle = -(-num_classes // classes_per_batch)
    seed = int(np.array(seed % 2**64, "uint64").view("int64"))

    def cycle_batches(cycle):
        seeds = tf.random.experimental.stateless_split(
            [seed, cycle], 2, GENERATOR
        )
        bits = _random_bits((num_classes,), seeds[0])
        classes = tf.argsort(bits, stable=True)
        filled = tf.range(steps_per_cycle * classes_per_batch) % num_classes
        classes = tf.gather(classes, filled)
        positions = _distinct_positions(
            tf.gather(counts, classes), samples_per_class, seeds[1]
        )
        indices = tf.gather(
            order, tf.gather(offsets, classes)[:, None] + positions
        )
        return tf.reshape(
            indices, (steps_per_cycle, classes_per_batch * samples_per_class)
        )

    first_cycle, inside = divmod(int(first_step), steps_per_cycle)
    cycles = tf.data.Dataset.range(first_cycle, np.iinfo("int64").max)
    return _endless(cycles.map(cycle_batches).unbatch().skip(inside))


def _with_pairs(order, counts):
    """Leaves out classes of one image, which would be its own positive."""
    is_pair = counts > 1
    if not is_pair.all():
        warnings.warn(
            f"{int((~is_pair).sum()):,} of {len(counts):,} classes have one "
            "image, which makes no pair; they are left out of the batches.",
            stacklevel=3,
        )
    return order[np.repeat(is_pair, counts)], counts[is_pair]


def _endless(batches):
    import tensorflow as tf

    endless = tf.data.experimental.assert_cardinality(
        tf.data.INFINITE_CARDINALITY
    )
    return untuned(batches.apply(endless))


def _confusable_batches(order, counts, neighbors, size, seed, first_step):
    """Batches whose classes are drawn with their neighbors."""
    import tensorflow as tf

    table_of = getattr(neighbors, "at", None)
    if table_of is None:
        neighbors = _checked_neighbors(neighbors, len(counts))
    num_classes, num_samples = size
    offsets = np.cumsum(counts) - counts

    def batch(step):
        table = neighbors
        if table_of is not None and (table := table_of(int(step))) is not None:
            table = _checked_neighbors(table, len(counts))
        random = np.random.default_rng((seed % 2**64, int(step)))
        classes = _confusable_classes(random, len(counts), num_classes, table)
        rows = []
        for chosen in classes:
            drawn = random.permutation(counts[chosen])[:num_samples]
            rows.append(order[offsets[chosen] + np.resize(drawn, num_samples)])
        return np.concatenate(rows)

    def as_tensor(step):
        rows = tf.numpy_function(batch, [step], "int64", stateful=True)
        return tf.ensure_shape(rows, (num_classes * num_samples,))

    steps = tf.data.Dataset.range(int(first_step), np.iinfo("int64").max)
    return _endless(steps.map(as_tensor))


def _confusable_classes(random, total, count, table):
    """Draws distinct classes: one half at random, then their neighbors."""
    order = random.permutation(total)
    half = order[: -(-count // 2)]
    chosen = dict.fromkeys(half.tolist())
    for one in [] if table is None else half:
        left = [c for c in table[one].tolist() if c >= 0 and c not in chosen]
        if left and len(chosen) < count:
            chosen[left[random.integers(len(left))]] = None
    for one in order.tolist():
        if len(chosen) == count:
            break
        chosen.setdefault(one)
    return list(chosen)


def _checked_neighbors(neighbors, num_classes):
    table = np.asarray(neighbors)
    if (
        table.ndim != 2
        or table.dtype.kind not in "iu"
        or len(table) != num_classes
        or table.size == 0
        or not -1 <= table.min() <= table.max() < num_classes
    ):
        raise ValueError(
            "`neighbors` must be numbers of classes in [-1, "
            f"{num_classes}), of shape ({num_classes}, n), or an object with "
            "a method `at(step)` that returns them, such as "
            f"`HardClasses`. Received: {table.dtype} of shape {table.shape}."
        )
    return table


def _random_bits(shape, seed):
    """Integers in [0, 2^63); a remainder by any count is nearly uniform."""
    import tensorflow as tf

    bits = tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype="int64", alg=GENERATOR
    )
    return tf.bitwise.bitwise_and(bits, tf.int64.max)


def _distinct_positions(counts, num_samples, seed):
    """Draws `num_samples` positions below each count, distinct if possible.

    Floyd's method: step j draws from the first `count - num_samples + j + 1`
    positions and takes the last of these when the draw is already chosen.
    """
    import tensorflow as tf

    draws = _random_bits((num_samples, tf.shape(counts)[0]), seed)
    chosen: list = []
    for j in range(num_samples):
        last = tf.maximum(counts - num_samples + j, 0)
        draw = draws[j] % (last + 1)
        if chosen:
            taken = tf.reduce_any(tf.stack(chosen) == draw, axis=0)
            draw = tf.where(taken, last, draw)
        chosen.append(draw)
    distinct = tf.stack(chosen, axis=1)
    in_turn = draws[0][:, None] % counts[:, None] + tf.range(
        num_samples, dtype="int64"
    )
    is_small = counts[:, None] < num_samples
    return tf.where(is_small, in_turn % counts[:, None], distinct)
