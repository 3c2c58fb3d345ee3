"""How images are cropped and resized for an encoder, as one object."""

import dataclasses
import inspect
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_choice, check_count, is_integer
from keras_gsp._compat import layers_at_any_depth
from keras_gsp.data.crops import Window, center_window
from keras_gsp.data.decoding import MAX_PIXELS, WHITE, cut_array, cut_encoded

# What decides which pixels an encoder sees.
CUT = "height", "width", "shorter_side", "background"


@keras.saving.register_keras_serializable("keras_gsp")
@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Crops and resizes images as an encoder expects them.

    The image is turned upright (Exif orientation), scaled until its shorter
    side has `shorter_side` pixels, and cropped to its central `image_size`
    pixels, all in one anti-aliased bilinear resize. Pixels stay uint8 in [0,
    255]; `build_encoder` adds a layer for a `scale` or an `offset`, which
    `for_application` and `from_converter` know.

    Args:
        image_size: side of the result in pixels, or (height, width). `None`:
            each image whole, in its own proportions, in batches of one, for a
            model such as `TwoLooks` that resizes itself.
        shorter_side: length of the shorter side before the crop, in pixels, at
            least `image_size`. Equal to `image_size`: the largest centered
            square. `None`: the whole image, whose proportions change. With
            `image_size=None` a larger image is reduced to it; `None`: none is.
        channels: 3, or 1 for gray values.
        max_pixels: largest number of pixels of a file to decode.
        background: color behind transparent pixels of a file: red, green and
            blue in [0, 255].
        scale, offset: what the encoder's layer multiplies pixels with, and
            adds then: a number or one for each channel. Default 1.0 and 0.0.

    Raises:
        ValueError: a size above `shorter_side`, or a number out of its range.

    Example:

    ```python
    preprocessing = gsp.data.Preprocessing(32, shorter_side=36)
    pixels = np.zeros((5, 40, 50, 3), "uint8")
    batches = gsp.data.image_batches(pixels, preprocessing=preprocessing)
    assert batches[0].shape == (5, 32, 32, 3)
    ```
    """

    image_size: int | tuple[int, int] | None
    shorter_side: float | None = None
    _: dataclasses.KW_ONLY
    channels: int = 3
    max_pixels: int = MAX_PIXELS
    background: tuple[int, int, int] = WHITE
    scale: float | tuple[float, ...] = 1.0
    offset: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        for name in ("image_size", "background", "scale", "offset"):
            if isinstance(getattr(self, name), list):  # as JSON keeps a tuple
                object.__setattr__(self, name, tuple(getattr(self, name)))
        sides = self._sides()
        are_counts = all(is_integer(side, least=1) for side in sides)
        if self.image_size is not None and not (are_counts and len(sides) == 2):
            raise ValueError(
                "`image_size` must be an integer of at least 1, (height, "
                f"width), or None. Received: image_size={self.image_size}."
            )
        least = 1 if self.image_size is None else max(sides)
        if self.shorter_side is not None and least > self.shorter_side:
            raise ValueError(
                "`shorter_side` must be at least `image_size`. Received: "
                f"image_size={self.image_size}, "
                f"shorter_side={self.shorter_side}."
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
    def for_application(
        cls,
        name: str,
        image_size: int | tuple[int, int] = 224,
        shorter_side: float | None = None,
        **options: Any,
    ) -> "Preprocessing":
        """Returns the pixel range of a model of `keras.applications`.

        `name` is that of the model's class, `"MobileNetV2"`. Raises
        `ValueError` for another name, and for a model that reads blue first
        (`"ResNet50"`, `"VGG16"`), which takes a layer of your own.
        """
        model = getattr(keras.applications, name, None)
        module = inspect.getmodule(model)
        if not inspect.isfunction(model) or module is None:
            raise ValueError(
                "`name` must be a model of `keras.applications`, as "
                f'"MobileNetV2". Received: name={name!r}.'
            )
        colors = np.concatenate([np.zeros((1, 3)), 255.0 * np.eye(3)])
        black, *rest = module.preprocess_input(
            colors[None], data_format="channels_last"
        )[0]
        scale = (np.array(rest) - black) / 255.0
        if np.any(scale != np.diag(np.diag(scale))):
            raise ValueError(
                "`name` must be a model that reads red, green and blue. "
                f"Received: name={name!r}, which reads blue first; put "
                "`preprocess_input` of its module into a layer."
            )
        scales, offsets = np.diag(scale).tolist(), black.tolist()
        ranges: dict[str, Any] = {
            "scale": scales[0] if len({*scales}) == 1 else tuple(scales),
            "offset": offsets[0] if len({*offsets}) == 1 else tuple(offsets),
        }
        return cls(image_size, shorter_side, **(ranges | options))

    @classmethod
    def from_converter(
        cls, converter: Any, size: int | tuple[int, int] | None = None
    ) -> "Preprocessing":
        """Reads size, crop and pixel range of an image converter of keras-hub.

        `size` replaces that of `keras_hub.layers.ImageConverter`. Raises
        `ValueError` for one without size, that pads, or that crops to a
        rectangle. Images are resized bilinearly whatever its `interpolation`.
        """
        given: Any = size or converter.image_size or ()
        sides: Any = (given, given) if is_integer(given) else tuple(given)
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
        if self.image_size is None or self.shorter_side is None:
            return None
        return max(self._sides()) / self.shorter_side

    def decode(self, contents: bytes, window: Any = None) -> np.ndarray:
        """Decodes one file, bytes: turn upright, crop, resize.

        `window` maps height and width to another crop (top, left, height,
        width) than the central one. Returns (height, width, channels), uint8.
        A damaged image, another format, or more than `max_pixels` are a
        `ValueError`.
        """
        return cut_encoded(
            contents,
            window or self.window,
            self._target,
            channels=self.channels,
            max_pixels=self.max_pixels,
            background=self.background,
        )

    def cut(self, image: np.ndarray, window: Any = None) -> np.ndarray:
        """As `decode`, of pixels (height, width, channels), uint8."""
        return cut_array(image, window or self.window, self._target)

    def window(self, height: int, width: int) -> Window:
        """Returns the crop of an image: top, left, height and width."""
        return center_window(height, width, self.crop_fraction)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Preprocessing":
        """Makes one from the arguments that `get_config` returned."""
        return cls(**config)

    def _sides(self) -> tuple[Any, ...]:
        size = self.image_size
        return size if isinstance(size, tuple) else (size, size)

    def _target(self, height, width):
        """Height and width of the result for those of a window."""
        if self.image_size is not None:
            return self._sides()
        shorter = min(height, width)
        if self.shorter_side is None or shorter <= self.shorter_side:
            return height, width
        ratio = self.shorter_side / shorter
        return max(round(height * ratio), 1), max(round(width * ratio), 1)


def preprocessing_of(encoder: Any) -> Preprocessing | None:
    """Returns how an encoder's images must be cut, `None` if it is unknown.

    An `ExpectedPreprocessing` layer at any depth says it; `ValueError` for two
    that disagree.
    """
    # The outermost comes first.
    layers = [
        layer
        for layer in layers_at_any_depth(encoder)
        if hasattr(layer, "preprocessing")
    ]
    records = [x.preprocessing for x in layers if x.preprocessing is not None]
    if layers and layers[0].preprocessing is None:  # It resizes for the others.
        sides = (getattr(layer, "shorter_side", None) for layer in layers)
        return Preprocessing(
            None,
            next(filter(None, sides), None),
            channels=encoder.input_shape[-1],
            background=records[0].background if records else WHITE,
        )
    if layers and isinstance(layers[0], keras.Model):
        return records[0]
    return agreed({f"layer {n}": one for n, one in enumerate(records)})


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
