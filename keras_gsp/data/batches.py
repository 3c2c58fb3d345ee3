"""Image batches for training and scoring: read, crop, resize, mirror."""

import copy
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

import keras
import numpy as np

from keras_gsp._checks import check_choice, check_count
from keras_gsp._labels import as_host_array, label_numbers
from keras_gsp.data.crops import boxed_window, random_window
from keras_gsp.data.image_set import ImageSet
from keras_gsp.data.listed_files import names_below
from keras_gsp.data.preprocessing import Preprocessing

# Batches that are read before they are asked for.
_AHEAD = 2
# More threads than cores take time from the training step.
_THREADS = min(32, os.cpu_count() or 1)


def image_batches(
    images: Sequence[str] | np.ndarray | ImageSet,
    labels: Any = None,
    *,
    preprocessing: Preprocessing | None,
    sampler: Any = None,
    augment: str | None = None,
    batch_size: int = 64,
) -> "ImageBatches":
    """Reads images in batches, to train on, to score, to index or to embed.

    Threads read, decode and resize the images of a batch, and the next two
    batches while the last one is used.

    Args:
        images: an `ImageSet`, whose labels and boxes are used; file names, a
            sequence or array of strings; or pixels (num_images, height, width,
            channels), uint8.
        labels: (num_images,), integers or strings, or `None`. Strings, and
            integers that 32 bits do not hold, become 0, 1, ... in their sorted
            order.
        preprocessing: how images are cropped and resized. `None`: arrays as
            they are, of any type.
        sampler: the images of each batch: a `ClassBalancedSampler`, or a list
            of one vector of positions for each batch. `None`: every image
            once, in order.
        augment: `"flip"` mirrors half of the images. `"area"` and `"side"`
            mirror too, and take a random crop, resized once: 0.16 to 1 of the
            image's area, as the benchmark's code, which computed the published
            numbers; or as its text a side of 40 to 256 pixels of an image
            whose shorter side is that of `preprocessing`.
        batch_size: images per batch without a sampler; the last batch may be
            shorter. Images of their own sizes come one by one.

    Returns:
        A `keras.utils.PyDataset` of images (batch, height, width, channels),
        uint8, or of (images, labels). Its attributes: `preprocessing`;
        `class_names`, the names of label codes or `None`; `ids`, the path of
        each file below the folder that all share, `None` for pixels and for a
        file that is there twice. `batches.from_step(step)` resumes a run
        exactly: a batch depends on the sampler, its seed and the step alone.

    Raises:
        TypeError: labels that are neither integers nor strings.
        ValueError: arguments that do not fit together, or a box outside of
            its image; of files when the batch is read.

    Example:

    ```python
    pixels = np.zeros((8, 40, 50, 3), "uint8")
    labels = np.repeat(["cat", "dog"], 4)
    batches = gsp.data.image_batches(
        pixels,
        labels,
        preprocessing=gsp.data.Preprocessing(32),
        sampler=gsp.data.ClassBalancedSampler(
            labels, classes_per_batch=2, samples_per_class=2
        ),
        augment="area",
    )
    images, classes = batches[0]
    assert images.shape == (4, 32, 32, 3)
    ```

    Reference:
        Musgrave et al., A Metric Learning Reality Check (ECCV 2020),
        section 4, for the crops.
    """
    check_choice(None, "flip", "area", "side", augment=augment)
    check_count(batch_size=batch_size)
    boxes, class_names = None, None
    if isinstance(images, ImageSet):
        if labels is not None:
            raise ValueError(
                "`labels` must be left out: an `ImageSet` has its own."
            )
        labels, boxes = images.labels, images.boxes
        class_names = np.array(images.class_names)
        images = images.paths if images.images is None else images.images
    source = _source(images, preprocessing)
    if labels is not None and class_names is None:
        labels, class_names = label_numbers(labels, length=len(source))
    side = getattr(preprocessing, "shorter_side", None)
    if augment and (preprocessing is None or augment == "side" and not side):
        raise ValueError(
            "`preprocessing` must be given with `augment`, and have a "
            '`shorter_side` with augment="side", whose crops refer to it. '
            f"Received: preprocessing={preprocessing}."
        )
    is_open = preprocessing is not None and preprocessing.image_size is None
    if sampler is None:
        size = 1 if is_open else batch_size
        ends = range(size, len(source), size)
        sampler = np.split(np.arange(len(source)), ends)
    return ImageBatches(
        source, labels, class_names, boxes, preprocessing, sampler, augment
    )


class ImageBatches(keras.utils.PyDataset):
    """What `image_batches` returns."""

    def __init__(
        self,
        source: np.ndarray,
        labels: np.ndarray | None,
        class_names: np.ndarray | None,
        boxes: np.ndarray | None,
        preprocessing: Preprocessing | None,
        sampler: Any,
        augment: str | None,
    ) -> None:
        super().__init__()
        self.source, self.labels, self.boxes = source, labels, boxes
        self.preprocessing: Any = preprocessing
        self.class_names = class_names
        self.sampler, self.augment = sampler, augment
        self.seed = getattr(sampler, "seed", 0) % 2**64
        self.first_step, self.rows = 0, None
        self._begin()

    @property
    def num_batches(self) -> int | None:
        """Number of batches, `None` if they are endless."""
        if not hasattr(self.sampler, "__len__"):
            return None
        return len(self.sampler) - self.first_step

    @property
    def ids(self) -> list[str] | None:
        """The path of each file below the folder that all share."""
        if self.source.ndim > 1 or not len(self.source):
            return None
        names = self.source.tolist()
        if len(set(names)) < len(names):
            return None
        return names_below(names, os.path.dirname(os.path.abspath(names[0])))

    def from_step(self, first_step: int, rows: Any = None) -> Self:
        """Returns the batches from a step on, the same bits as in one run.

        `rows`: the rows of each batch to read, the part of one of several
        processes; `None`: all.
        """
        later = copy.copy(self)
        later.first_step, later.rows = first_step, rows
        later._begin()
        return later

    def __getitem__(self, index: int) -> Any:
        """Returns one batch, and begins to read the next ones."""
        if self.preprocessing is None:
            rows = self._positions(self.first_step + int(index))[1]
            return self._labeled(self.source[rows], rows)
        with self._lock:
            rows, tasks = self._read(int(index))
        images = [image for task in tasks for image in task.result()]
        errors = [
            f"{self.source[row] if self.source.ndim == 1 else row} ({image})"
            for row, image in zip(rows, images, strict=True)
            if isinstance(image, Exception)
        ]
        if errors:
            raise ValueError(
                "Each file must be an image that can be read and holds its "
                f"box, if it has one. Received: {'; '.join(errors[:10])}"
            )
        return self._labeled(np.stack(images), rows)

    def _begin(self):
        self._lock = threading.Lock()
        self._threads: Any = None
        self._reading: dict[int, Any] = {}
        self._last = -1

    def _read(self, index):
        """Starts to read a batch, and the next ones of those read in order."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS)
        ahead = _AHEAD if index == self._last + 1 else 0
        end = self.num_batches
        end = index + ahead if end is None else min(index + ahead, end - 1)
        for step in range(index, end + 1):
            if step not in self._reading:
                self._reading[step] = self._started(self.first_step + step)
        # Keras reads the first batches once more, to see their shapes.
        for step in [s for s in self._reading if not abs(s - index) <= _AHEAD]:
            for task in self._reading.pop(step)[1]:
                task.cancel()
        self._last = index
        return self._reading[index]

    def _started(self, step):
        places, rows = self._positions(step)
        parts = np.array_split(np.stack([places, rows], axis=1), _THREADS)
        submit = partial(self._threads.submit, self._images, step)
        return rows, [submit(part.tolist()) for part in parts]

    def _positions(self, step):
        """Places in the batch, and positions of their images."""
        rows = np.asarray(self.sampler[step])
        places = np.arange(len(rows))
        if self.rows is not None:
            places = places[self.rows]
        return places, rows[places]

    def _labeled(self, images, rows):
        if self.labels is None:
            return images
        return images, self.labels[rows].astype("int64")

    def _images(self, step, pairs):
        """Images, or in place of one the error of its file."""
        images = []
        for place, row in pairs:
            try:
                images.append(self._prepared(step, place, row))
            except (OSError, ValueError) as error:
                images.append(error)
        return images

    def _prepared(self, step, place, row):
        window, is_mirrored = None, False
        if self.augment is not None:
            random = np.random.default_rng((self.seed, step, place))
        if self.augment in ("area", "side"):
            window = partial(
                random_window,
                random=random,
                crop=self.augment,
                shorter_side=self.preprocessing.shorter_side,
            )
        if self.boxes is not None:
            inside = window or self.preprocessing.window
            window = partial(boxed_window, self.boxes[row].tolist(), inside)
        if self.source.ndim == 1:
            with open(self.source[row], "rb") as file:
                contents = file.read()
            image = self.preprocessing.decode(contents, window)
        else:
            image = self.preprocessing.cut(self.source[row], window)
        if self.augment is not None:
            is_mirrored = random.random() < 0.5
        return image[:, ::-1] if is_mirrored else image


def _source(images, preprocessing):
    """File names as strings, or pixels, in a NumPy array."""
    images = as_host_array(images, "images")
    is_array = images.ndim == 4
    if preprocessing is not None and images.dtype.kind == "U":
        is_array = images.ndim == 1
    elif preprocessing is not None:
        is_array &= images.dtype == np.uint8
    if not is_array:
        raise ValueError(
            "`images` must be file names, with a `preprocessing`, or uint8 "
            "(num_images, height, width, channels). Received: "
            f"{images.dtype} of shape {images.shape}."
        )
    return images
