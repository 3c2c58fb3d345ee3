"""How images are cropped and resized for an encoder, as one object."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_choice, check_count, is_integer
from keras_gsp._compat import layers_at_any_depth
from keras_gsp._tensor import Tensor
from keras_gsp.data import crops, pillow_decoding
from keras_gsp.data.decoding import MAX_PIXELS, WHITE, cut_array, cut_encoded
from keras_gsp.data.untuned import has_tensorflow

# What decides which pixels an encoder sees.
CUT = "height", "width", "crop_fraction", "background"


@keras.saving.register_keras_serializable("keras_gsp")
@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Crops and resizes images as an encoder expects them.

    The image is turned upright (Exif orientation), scaled until its shorter
    side has `resize` pixels, and cropped to its central `size` pixels, all in
    one bilinear resize. Pixels stay uint8 in [0, 255]; an encoder that needs
    another range has a layer for it, which `build_encoder` adds for a `scale`
    or an `offset`. `from_converter` reads all from a preset of keras-hub.

    Args:
        size: side of the result in pixels, or (height, width). `None`, with
            `resize=None`: each image whole, at its own size, in batches of
            one, for a model such as `TwoLooks` that resizes itself.
        resize: length of the shorter side before the crop, in pixels, at
            least `size`. Equal to `size`: the largest centered square.
            `None`: the whole image, whose proportions change.
        channels: 3, or 1 for gray values.
        max_pixels: largest number of pixels of a file to decode.
        background: color behind transparent pixels of a file: red, green and
            blue in [0, 255].
        scale, offset: what the encoder's layer multiplies pixels with, and
            adds then: a number or one for each channel. Default 1.0 and 0.0.

    Raises:
        ValueError: a size above `resize`, or a number out of its range.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    preprocessing = gsp.data.Preprocessing(32, 36)
    pixels = np.zeros((5, 40, 50, 3), "uint8")
    batches = gsp.data.evaluation_batches(pixels, preprocessing=preprocessing)
    assert next(iter(batches)).shape == (5, 32, 32, 3)
    ```
    """

    size: int | tuple[int, int] | None = 227
    resize: float | None = 256
    _: dataclasses.KW_ONLY
    channels: int = 3
    max_pixels: int = MAX_PIXELS
    background: tuple[int, int, int] = WHITE
    scale: float | tuple[float, ...] = 1.0
    offset: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        for name in ("size", "background", "scale", "offset"):
            if isinstance(getattr(self, name), list):  # as JSON keeps a tuple
                object.__setattr__(self, name, tuple(getattr(self, name)))
        sides = self._sides()
        is_open = (self.size, self.resize) == (None, None)
        are_counts = all(is_integer(side, least=1) for side in sides)
        if not (is_open or are_counts and len(sides) == 2):
            raise ValueError(
                "`size` must be an integer of at least 1, (height, width), or "
                "None with resize=None. Received: "
                f"size={self.size}, resize={self.resize}."
            )
        if self.resize is not None and max(sides) > self.resize:
            raise ValueError(
                "`size` must be in [1, resize]. Received: "
                f"size={self.size}, resize={self.resize}."
            )
        check_choice(1, 3, channels=self.channels)
        check_count(max_pixels=self.max_pixels)
        colors = [is_integer(c, least=0) and c < 256 for c in self.background]
        if len(colors) != 3 or not all(colors):
            raise ValueError(
                "`background` must be three integers in [0, 255]. "
                f"Received: background={self.background}."
            )

    @classmethod
    def from_converter(
        cls, converter: Any, size: int | tuple[int, int] | None = None
    ) -> "Preprocessing":
        """Reads size, crop and pixel range of an image converter of keras-hub.

        `size` replaces that of `keras_hub.layers.ImageConverter`. Raises
        `ValueError` for one without size, that pads, or that crops to a
        rectangle. Images are resized bilinearly whatever its `interpolation`.
        """
        found: Any = size or converter.image_size or ()
        sides: Any = (found, found) if is_integer(found) else tuple(found)
        crops_to = converter.crop_to_aspect_ratio
        pads = getattr(converter, "pad_to_aspect_ratio", False)
        if not sides or pads or (crops_to and sides[0] != sides[1]):
            raise ValueError(
                "`converter` must have an `image_size`, or be given a `size`, "
                "and crop to a square or not at all. Received: size="
                f"{sides}, crop_to_aspect_ratio={crops_to}, "
                f"pad_to_aspect_ratio={pads}."
            )
        own = {name: getattr(converter, name) for name in ("scale", "offset")}
        own = {
            k: np.asarray(x).tolist() for k, x in own.items() if x is not None
        }
        return cls(sides, sides[0] if crops_to else None, **own)

    @property
    def height(self) -> int | None:
        """Height of the result in pixels, `None` if it is the image's."""
        return self._sides()[0]

    @property
    def width(self) -> int | None:
        """Width of the result in pixels, `None` if it is the image's."""
        return self._sides()[1]

    @property
    def crop_fraction(self) -> float | None:
        """Side of the kept square over the shorter side; `None`: all kept."""
        return self.resize and max(self._sides()) / self.resize

    def decode(self, contents: Tensor, window: Any = None) -> Tensor:
        """Decodes one file, bytes: turn upright, crop, resize.

        `window` maps height and width to another crop (top, left, height,
        width) than the central one. Returns (height, width, channels), uint8,
        a TensorFlow tensor; without TensorFlow a NumPy array. A damaged image,
        another format, or more than `max_pixels` are an InvalidArgumentError
        of TensorFlow when it runs; without TensorFlow a ValueError.
        """
        is_tensor = has_tensorflow()
        decode = cut_encoded if is_tensor else pillow_decoding.cut_encoded
        return decode(
            contents,
            (self.height, self.width),
            window or crops.evaluation_window(self.crop_fraction),
            channels=self.channels,
            max_pixels=self.max_pixels,
            background=self.background,
        )

    def cut(self, image: Tensor, window: Any = None) -> Tensor:
        """As `decode`, of pixels (height, width, channels), uint8."""
        window = window or crops.evaluation_window(self.crop_fraction)
        if not has_tensorflow():
            sides = self.height, self.width
            return pillow_decoding.cut(image, window(*image.shape[:2]), sides)
        return cut_array(image, (self.height, self.width), window)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Preprocessing":
        """Makes one from the arguments that `get_config` returned."""
        return cls(**config)

    def _sides(self) -> tuple[Any, ...]:
        return self.size if isinstance(self.size, tuple) else (self.size,) * 2


def preprocessing_of(encoder: Any) -> Preprocessing | None:
    """Returns how an encoder's images must be cut, `None` if it is unknown.

    The encoder has an `ExpectedPreprocessing` layer, at any depth, such as
    `build_encoder(..., preprocessing=...)` adds; two that disagree are a
    `ValueError`.

    Example:

    ```python
    import keras
    import keras_gsp as gsp

    encoder = gsp.models.build_encoder(
        keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(8, 3)]),
        preprocessing=gsp.data.Preprocessing(32, 36),
    )
    assert gsp.data.preprocessing_of(encoder).resize == 36
    ```
    """
    own = getattr(encoder, "preprocessing", None)
    if isinstance(own, Preprocessing):
        return own
    found, is_original = [], False
    for layer in layers_at_any_depth(encoder):
        found.append(getattr(layer, "preprocessing", None))
        if getattr(layer, "takes_originals", False):  # Its encoders do not.
            return found[-1] or _original(layer, preprocessing_of(layer.first))
        is_original = is_original or getattr(layer, "cuts_originals", False)
    found = [one for one in found if isinstance(one, Preprocessing)]
    if is_original:  # A model of the layers of one that takes originals.
        return _original(encoder, next(iter(found), None))
    return agreed({f"layer {n}": one for n, one in enumerate(found)})


def _original(model, inner):
    """Images as they are, with the channels and background of a model."""
    background = inner.background if inner else WHITE
    own = {"channels": model.input_shape[-1], "background": background}
    return Preprocessing(None, None, **own)


def agreed(found: dict[str, Preprocessing | None]) -> Preprocessing | None:
    """Returns the preprocessing that all sources share, `None` if unknown."""
    known = {name: one for name, one in found.items() if one is not None}
    first = next(iter(known), None)
    if first is None:
        return None
    for name, one in known.items():
        if any(getattr(one, n) != getattr(known[first], n) for n in CUT):
            raise ValueError(
                f"`{first}` and `{name}` must cut images alike. Received: "
                f"{first} with {known[first]}, {name} with {one}."
            )
    return known[first]
