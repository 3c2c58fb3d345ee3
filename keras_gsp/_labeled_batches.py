"""(images, labels) batches of any data set, and their embeddings."""

import sys
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._embeddings import checked_embeddings
from keras_gsp._encoding import embedding_of, structure_of
from keras_gsp._labels import (
    as_host_array,
    batch_labels,
    checked_labels,
    host_array,
)
from keras_gsp._processes import predictor


def batches_of(
    dataset: Any, batch_size: int = 64, order: np.ndarray | None = None
) -> Iterator[Any]:
    """Yields the batches of a data set once, or without end, unchecked.

    It may be a `tf.data.Dataset`, a `keras.utils.PyDataset`, a tuple of
    arrays, cut into batches of rows in the given order, or any other iterable.
    """
    if isinstance(dataset, tuple):
        for start in range(0, len(dataset[-1]), batch_size):
            rows: Any = slice(start, start + batch_size)
            if order is not None:
                rows = order[rows]
            yield tuple(_rows_of(array, rows) for array in dataset)
    elif isinstance(dataset, keras.utils.PyDataset):
        end = dataset.num_batches
        for index in count() if end is None else range(end):
            yield dataset[index]
    elif _is_tf_dataset(dataset):
        yield from dataset.as_numpy_iterator()
    else:
        yield from dataset


def _rows_of(array, rows):
    if isinstance(array, dict):
        return {name: _rows_of(one, rows) for name, one in array.items()}
    return array[rows]


class LabeledBatches:
    """Iterates over (images, labels) batches, any number of times.

    The data set is a finite `tf.data.Dataset` or `keras.utils.PyDataset`, or a
    tuple of two arrays, cut into batches. Images may be a dict of arrays.
    """

    def __init__(self, dataset: Any, name: str, batch_size: int) -> None:
        self.dataset = dataset
        self.name = name
        self.batch_size = batch_size
        if isinstance(dataset, tuple | list) and len(dataset) == 2:
            self._check_arrays(*dataset)
        elif _is_tf_dataset(dataset):
            check_spec(dataset.element_spec, name)
            if int(dataset.cardinality()) == -1:
                raise ValueError(
                    f"`{name}` must be finite. Received: an infinite data "
                    "set; end it with `.take(num_batches)`."
                )
        elif not isinstance(dataset, keras.utils.PyDataset):
            raise TypeError(
                f"`{name}` must be a tf.data.Dataset or keras.utils.PyDataset "
                "of (images, labels) batches, or a tuple of two arrays. "
                f"Received: {structure_of(dataset)}."
            )

    def __iter__(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Yields (images, labels) batches, labels as a flat NumPy array."""
        num_batches = 0
        for batch in batches_of(self.dataset, self.batch_size):
            check_pair(batch, self.name)
            images, labels = batch
            labels = as_host_array(labels, f"labels of {self.name}")
            # `image_batches` yields codes of names.
            names = getattr(self.dataset, "class_names", None)
            labels = labels if names is None else names[labels]
            length = len(keras.tree.flatten(images)[0])
            labels = checked_labels(labels, length, f"labels of {self.name}")
            yield images, labels
            num_batches += 1
        if not num_batches:
            raise ValueError(
                f"`{self.name}` must hold at least one batch. Received: none."
            )

    def check_has_pair(self, gallery: "LabeledBatches | None" = None) -> None:
        """Raises `ValueError` unless an image has a match here or there."""
        if gallery is None:
            seen: set[object] = set()
            for _, labels in self:
                labels = labels.tolist()
                if len(seen.union(labels)) < len(seen) + len(labels):
                    return
                seen.update(labels)
            raise ValueError(
                f"`{self.name}` must hold two images of one class. "
                f"Received: {len(seen)} images of {len(seen)} classes."
            )
        for _, queries in self:
            wanted = set(queries.tolist())
            if any(not wanted.isdisjoint(o.tolist()) for _, o in gallery):
                return
        raise ValueError(
            f"`{gallery.name}` must hold an image of a class of `{self.name}`. "
            "Received: no class in common."
        )

    def _check_arrays(self, images, labels):
        labels = as_host_array(labels, f"labels of {self.name}")
        if isinstance(images, dict):
            images = {name: _as_array(part) for name, part in images.items()}
        else:
            images = _as_array(images)
        lengths = [len(one) for one in keras.tree.flatten(images)]
        count = labels.shape[0] if labels.ndim else 0
        if {*lengths} != {count} or not count:
            raise ValueError(
                f"`{self.name}` must hold as many labels as images, at least "
                f"one. Received: {lengths[0]} images, {count} labels."
            )
        self.dataset = images, labels


def check_pair(batch: Any, name: str) -> None:
    """Raises `TypeError` unless a batch is (images, labels)."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise TypeError(
            f"`{name}` must yield (images, labels). "
            f"Received: {structure_of(batch)}."
        )


def check_spec(spec: Any, name: str) -> None:
    """Checks the structure of a tf.data.Dataset's elements, and their batch."""
    check_pair(spec, name)
    shapes = [one.shape for one in keras.tree.flatten(spec)]
    shapes = [shape for shape in shapes if shape.rank is not None]
    sizes = {shape[0] if shape.rank else "none" for shape in shapes} - {None}
    if "none" in sizes or len(sizes) > 1:
        raise ValueError(
            f"`{name}` must yield batches; end it with `.batch(64)`. "
            f"Received: elements of shapes {[tuple(one) for one in shapes]}."
        )


def first_labels(dataset: Any) -> Any:
    """Checks what `fit` trains on, and returns the labels of its first batch.

    `None` for a data set that is not read here: others than a `PyDataset`,
    unless JAX trains, which would cut large labels and cannot raise in a step.
    """
    if hasattr(dataset, "shape") or isinstance(dataset, dict | list | tuple):
        raise TypeError(
            "Labels must be given beside arrays: `fit(images, labels)`. "
            "Received: no labels."
        )
    spec = getattr(dataset, "element_spec", None)
    if spec is not None:
        check_spec(spec, "x")
    if isinstance(dataset, keras.utils.PyDataset):
        batch = dataset[0]
    elif spec is not None and keras.backend.backend() == "jax":
        batch = next(iter(dataset), None)
    else:
        return None
    if batch is None:
        return None
    check_pair(batch, "x")
    return batch_labels(host_array(batch[1]))


def _as_array(values):
    return values if hasattr(values, "dtype") else ops.convert_to_numpy(values)


def _is_tf_dataset(dataset):
    """Whether it is a tf.data.Dataset, without importing TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(
        dataset, tensorflow.data.Dataset
    )


def encoded_batches(
    encoder: keras.Model, batches: Iterable[tuple[Any, Any]]
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields embeddings (batch, size) and labels, batch by batch.

    The encoder has one output, or a dict of outputs with `"embedding"`.
    """
    predict = predictor(encoder)
    for images, labels in batches_of(batches, batch_size=64):
        embeddings = embedding_of(predict(images))
        # Under tf.distribute every replica returns the whole batch.
        yield checked_embeddings(embeddings[: len(labels)]), labels


def encoded(
    encoder: keras.Model, batches: Iterable[tuple[Any, Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns embeddings (items, size) and labels (items,) of a data set."""
    embeddings, labels = zip(*encoded_batches(encoder, batches), strict=True)
    return np.concatenate(embeddings), np.concatenate(labels)
