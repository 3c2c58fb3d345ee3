"""Image batches without TensorFlow: Pillow reads, NumPy crops and resizes."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_gsp.data import crops


class HostBatches(keras.utils.PyDataset):
    """Batches of prepared images, (images) or (images, labels).

    `index_batches` holds the positions of each batch, by step; `augment` the
    options of a random crop and flip. Without `preprocessing` arrays are whole.
    """

    def __init__(
        self,
        index_batches: Any,
        source: Any,
        labels: np.ndarray | None,
        preprocessing: Any,
        *,
        boxes: np.ndarray | None = None,
        augment: dict[str, Any] | None = None,
        seed: int = 0,
        first_step: int = 0,
        positions: Any = slice(None),
    ) -> None:
        super().__init__()
        self.index_batches, self.positions = index_batches, positions
        self.source, self.labels, self.boxes = source, labels, boxes
        self.names = names_with_boxes(source, boxes)
        self.preprocessing, self.augment = preprocessing, augment
        self.seed, self.first_step = seed % 2**64, first_step

    @property
    def num_batches(self) -> int | None:
        """Number of batches, `None` if they are endless."""
        if isinstance(self.index_batches, keras.utils.PyDataset):
            return self.index_batches.num_batches
        return len(self.index_batches)

    def __getitem__(self, step: int) -> Any:
        rows = self.index_batches[step]
        places = np.arange(len(rows))[self.positions]
        rows = rows[places]
        if self.preprocessing is None:
            return self._labeled(self.source[rows], rows)
        prepare = partial(self._prepared, self.first_step + step)
        with ThreadPoolExecutor() as threads:
            images = list(threads.map(prepare, places, rows))
        unread = [
            self.names[row].decode("utf-8", "replace")
            for row, image in zip(rows, images, strict=True)
            if image is None
        ]
        if unread:
            raise ValueError(
                f"{unread_files(self.preprocessing.max_pixels)} {unread[:10]}"
            )
        return self._labeled(np.stack(images), rows)

    def _labeled(self, images, rows):
        if self.labels is None:
            return images
        return images, self.labels[rows].astype("int64")

    def _prepared(self, step, place, row):
        """The image of one row, `None` for a file that cannot be used."""
        window = is_mirrored = None
        if self.augment is not None:
            options = dict(self.augment)
            seed = self.seed, int(step), int(place)
            is_mirrored = np.random.default_rng((*seed, 1)).random() < 0.5
            is_mirrored &= options.pop("flip")
            if options["crop"] is not None:
                options["seed"] = seed
                window = partial(crops.host_random_window, **options)
        elif self.boxes is not None:
            window = partial(self._box_window, self.boxes[row].tolist())
        image = self.source[row]
        if self.source.ndim == 4:
            image = self.preprocessing.cut(image, window)
        else:
            try:
                with open(image, "rb") as file:
                    image = self.preprocessing.decode(file.read(), window)
            except (OSError, ValueError):
                return None
        return image[:, ::-1] if is_mirrored else image

    def _box_window(self, box, height, width):
        x, y, box_width, box_height = box
        if x + box_width > width or y + box_height > height:
            raise ValueError("box")
        inside = crops.evaluation_window(self.preprocessing.crop_fraction)
        return np.add(inside(box_height, box_width), (y, x, 0, 0))


def names_with_boxes(source: np.ndarray, boxes: Any) -> np.ndarray:
    """Returns the names of files, with the box of each where boxes are given.

    A list may take many boxes of one photograph.
    """
    if boxes is None or source.ndim == 4:
        return source
    rows = zip(source.tolist(), boxes.tolist(), strict=True)
    return np.array([b"%s (box %d, %d, %d, %d)" % (n, *b) for n, b in rows])


def unread_files(max_pixels: int) -> str:
    """The sentence before the names of files that a batch could not read."""
    return (
        f"Each file must be an image of at most max_pixels={max_pixels} "
        "pixels that holds its box, if it has one; "
        "`gsp.data.readable_images` names the reason if it is not the box. "
        "Received:"
    )
