"""Batches of P classes with K samples each, a function of seed and step."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_count, check_integer
from keras_gsp._labels import as_host_array, checked_labels
from keras_gsp._tensor import Tensor
from keras_gsp.data.untuned import has_tensorflow, tf, untuned


def class_table(labels: Tensor) -> tuple[Any, Any]:
    """Returns positions (items,) class after class, and counts (classes,)."""
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


def class_balanced_batches(
    labels: Tensor,
    *,
    classes_per_batch: int,
    samples_per_class: int,
    seed: int = 0,
    first_step: int = 0,
) -> Any:
    """Returns an endless data set of index vectors, P classes x K samples.

    Metric losses need pairs of one class in every batch; shuffled batches of
    thousands of classes have almost none. Each cycle takes the classes in a
    new random order, each once; if P does not divide their number, the
    cycle's first classes fill its last batch. No class is twice in a batch.
    The K samples of a class are drawn without replacement; a class with fewer
    than K repeats them in order from a random start. A class of one item makes
    no pair and is left out, with a warning, unless K is 1. Batch number `step`
    depends on `seed` and `step` alone: `first_step` resumes a run exactly.

    Args:
        labels: (items,) or (items, 1), numbers or strings.
        classes_per_batch: P, at least 1, at most the number of classes.
        samples_per_class: K, at least 1.
        seed: an integer; equal seeds give equal batches.
        first_step: number of batches to skip, at least 0.

    Returns:
        An infinite `tf.data.Dataset` of int64 vectors (P * K,), positions in
        `labels`; the K samples of a class are neighbors. Without TensorFlow a
        `keras.utils.PyDataset` of the same vectors as NumPy arrays.

    Raises:
        TypeError: labels that are neither numbers nor strings.
        ValueError: no labels, fewer classes than P, a number out of its range.

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
    order, counts = class_table(labels)
    check_count(
        classes_per_batch=classes_per_batch, samples_per_class=samples_per_class
    )
    if samples_per_class > 1:
        order, counts = _with_pairs(order, counts)
    check_integer(least=0, first_step=first_step)
    check_integer(seed=seed)
    if len(counts) < classes_per_batch:
        raise ValueError(
            "`labels` must have at least `classes_per_batch` classes, of two "
            f"images or more. Received: {len(counts)} classes and "
            f"classes_per_batch={classes_per_batch}."
        )
    size = classes_per_batch, samples_per_class
    batches = _IndexBatches(order, counts, size, seed, int(first_step))
    return batches.as_tf_dataset() if has_tensorflow() else batches


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


class _IndexBatches(keras.utils.PyDataset):
    """Endless batches of positions, drawn cycle by cycle on the host."""

    def __init__(self, order, counts, size, seed, first_step):
        super().__init__()
        self.order, self.counts, self.size = order, counts, size
        self.seed, self.first_step = seed % 2**64, first_step
        self.steps_per_cycle = -(-len(counts) // size[0])
        self._last: tuple[Any, Any] = None, None

    @property
    def num_batches(self):
        """Endless."""
        return None

    def __getitem__(self, index):
        step = self.first_step + int(index)
        cycle, inside = divmod(step, self.steps_per_cycle)
        last, batches = self._last
        if last != cycle:
            batches = self.cycle(cycle)
            self._last = cycle, batches
        return batches[inside]

    def cycle(self, cycle):
        """Returns the batches of one cycle, (steps, P * K), int64."""
        num_classes, num_samples = self.size
        total = len(self.counts)
        # Raw bits: NumPy keeps them for ever, its permutations it may change.
        random = np.random.Philox(
            np.random.SeedSequence((self.seed, int(cycle)))
        )
        classes = np.argsort(random.random_raw(total), kind="stable")
        classes = np.resize(classes, self.steps_per_cycle * num_classes)
        draws = random.random_raw(num_samples * len(classes)) >> np.uint64(1)
        positions = _distinct_positions(
            self.counts[classes], draws.astype("int64").reshape(num_samples, -1)
        )
        offsets = (np.cumsum(self.counts) - self.counts)[classes]
        indices = self.order[offsets[:, None] + positions]
        return indices.reshape(self.steps_per_cycle, -1)

    def as_tf_dataset(self):
        """Returns the same batches as a `tf.data.Dataset`."""
        shape = self.steps_per_cycle, self.size[0] * self.size[1]

        def batches_of(cycle):
            rows = tf.numpy_function(self.cycle, [cycle], "int64")
            return tf.ensure_shape(rows, shape)

        first_cycle, inside = divmod(self.first_step, self.steps_per_cycle)
        cycles = tf.data.Dataset.range(first_cycle, np.iinfo("int64").max)
        batches = cycles.map(batches_of).unbatch().skip(inside)
        endless = tf.data.experimental.assert_cardinality(
            tf.data.INFINITE_CARDINALITY
        )
        return untuned(batches.apply(endless))


def _distinct_positions(counts, draws):
    """Turns draws (samples, classes) into positions, distinct if possible."""
    # Floyd's method: step j draws from the first `count - num_samples + j + 1`
    # positions and takes the last of these when the draw is already chosen.
    num_samples = len(draws)
    chosen: list = []
    for j, drawn in enumerate(draws):
        last = np.maximum(counts - num_samples + j, 0)
        draw = drawn % (last + 1)
        if chosen:
            taken = (np.stack(chosen) == draw).any(axis=0)
            draw = np.where(taken, last, draw)
        chosen.append(draw)
    distinct = np.stack(chosen, axis=1)
    in_turn = draws[0][:, None] % counts[:, None] + np.arange(num_samples)
    is_small = counts[:, None] < num_samples
    return np.where(is_small, in_turn % counts[:, None], distinct)
