"""Batches of P classes with K samples each, a function of seed and step."""

import warnings

import numpy as np

from keras_gsp._checks import check_count, check_integer
from keras_gsp._labels import label_codes
from keras_gsp._tensor import Tensor


class ClassBalancedSampler:
    """Positions of P classes x K samples for each batch, without end.

    Metric losses need pairs of one class in every batch; shuffled batches of
    thousands of classes have almost none. Each cycle takes the classes in a
    new random order, each once; if P does not divide their number, the
    cycle's first classes fill its last batch. No class is twice in a batch.
    The K samples of a class are drawn without replacement; a class with fewer
    than K repeats them in order from a random start. A class of one item makes
    no pair and is left out, with a warning, unless K is 1.

    `sampler[step]` is (P * K,), int64, positions in `labels`; the K samples of
    a class are neighbors. It depends on `seed` and `step` alone.

    Args:
        labels: (items,) or (items, 1), numbers or strings.
        classes_per_batch: P, at least 1, at most the number of classes.
        samples_per_class: K, at least 1.
        seed: an integer; equal seeds give equal batches.

    Raises:
        TypeError: labels that are neither numbers nor strings.
        ValueError: no labels, fewer classes than P, a number out of its range.

    Example:

    ```python
    labels = np.repeat(np.arange(12), 5)
    sampler = gsp.data.ClassBalancedSampler(
        labels, classes_per_batch=4, samples_per_class=2, seed=1
    )
    assert sampler[0].shape == (8,)
    assert len(set(labels[sampler[0]])) == 4
    ```
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        samples_per_class: int,
        seed: int = 0,
    ) -> None:
        codes, _ = label_codes(labels)
        order, counts = np.argsort(codes, kind="stable"), np.bincount(codes)
        check_count(
            classes_per_batch=classes_per_batch,
            samples_per_class=samples_per_class,
        )
        check_integer(seed=seed)
        if samples_per_class > 1:
            order, counts = _with_pairs(order, counts)
        if len(counts) < classes_per_batch:
            raise ValueError(
                "`labels` must have at least `classes_per_batch` classes, of "
                f"two images or more. Received: {len(counts)} classes and "
                f"classes_per_batch={classes_per_batch}."
            )
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.seed = seed
        self._order, self._counts = order, counts
        self._cycle: tuple[int, np.ndarray] | None = None

    def __getitem__(self, step: int) -> np.ndarray:
        """Returns the positions of one batch, (P * K,), int64."""
        check_integer(least=0, step=step)
        steps_per_cycle = -(-len(self._counts) // self.classes_per_batch)
        cycle, inside = divmod(int(step), steps_per_cycle)
        if self._cycle is None or self._cycle[0] != cycle:
            self._cycle = cycle, self._batches(cycle, steps_per_cycle)
        return self._cycle[1][inside]

    def _batches(self, cycle, num_steps):
        """The batches of one cycle, (num_steps, P * K)."""
        num_samples, total = self.samples_per_class, len(self._counts)
        # Raw bits are stable across NumPy versions; permutations are not.
        seeds = np.random.SeedSequence((self.seed % 2**64, cycle))
        random = np.random.Philox(seeds)
        classes = np.argsort(random.random_raw(total), kind="stable")
        classes = np.resize(classes, num_steps * self.classes_per_batch)
        draws = random.random_raw(num_samples * len(classes)) >> np.uint64(1)
        positions = _distinct_positions(
            self._counts[classes],
            draws.astype("int64").reshape(num_samples, -1),
        )
        offsets = (np.cumsum(self._counts) - self._counts)[classes]
        indices = self._order[offsets[:, None] + positions]
        return indices.reshape(num_steps, -1)


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
