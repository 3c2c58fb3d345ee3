"""Splits a set of images into classes to learn from and unseen ones."""

import numpy as np

from training.datasets.image_set import ImageSet, RetrievalSplits


def split_by_class(
    images: ImageSet,
    name: str,
    *,
    num_train_classes: int | None = None,
    seed: int | None = 0,
) -> RetrievalSplits:
    """Splits images so that no class is on both sides.

    Args:
        images: All images.
        name: Name of the data set.
        num_train_classes: In [1, num_classes); half of them by default.
        seed: Seed of the draw; None takes the first classes, as the
            published splits of the benchmark data sets do.

    Returns:
        The splits.

    Raises:
        ValueError: `num_train_classes` leaves no class on a side.
    """
    total = images.num_classes
    wanted = total // 2 if num_train_classes is None else num_train_classes
    if not 1 <= wanted < total:
        raise ValueError(
            "`num_train_classes` must be in [1, number of classes = "
            f"{total}) so that unseen classes remain. Received: "
            f"num_train_classes={wanted}."
        )
    order = np.arange(total)
    if seed is not None:
        order = np.random.default_rng(seed).permutation(total)
    return RetrievalSplits(
        name=name,
        train=images.of_classes(order[:wanted]),
        test=images.of_classes(order[wanted:]),
    )
