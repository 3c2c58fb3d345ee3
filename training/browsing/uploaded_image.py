"""An image from outside, looked at before it is decoded."""

import io
import warnings

from PIL import Image, ImageOps, UnidentifiedImageError

MOST_BYTES = 20 * 2**20
"""Of an uploaded file."""
MOST_PIXELS = 40_000_000
"""Of the image in it; decoded it takes three bytes for each."""
KINDS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")


def checked_image(contents: bytes) -> bytes:
    """Returns a file that an export reads, or says why there is none.

    The size is read from the head of the file; a picture that would fill the
    memory is refused before one pixel of it is made.

    Args:
        contents: An uploaded file.

    Returns:
        The file itself, or a PNG of it where exports do not read its kind.

    Raises:
        ValueError: too many bytes or pixels, or no image.
    """
    if len(contents) > MOST_BYTES:
        raise ValueError(
            f"An image must have at most {MOST_BYTES // 2**20} MB. "
            f"Received: {len(contents) / 2**20:.1f} MB."
        )
    with warnings.catch_warnings():
        # Pillow warns of large images; here they are refused.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = _opened(contents)
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise _too_large(f"{width} x {height}")
        if image.format != "WEBP":
            return contents
        return _png(image)


def centered_square(
    contents: bytes, crop_fraction: float, side: int
) -> Image.Image:
    """The part of an image that an export embeds, for showing.

    Args:
        contents: An encoded image.
        crop_fraction: Side of the square, of the image's shorter side.
        side: Largest side of the result, pixels.

    Raises:
        ValueError: the file is no whole image.
    """
    image = _opened(contents)
    if image.width * image.height > MOST_PIXELS:
        raise ValueError("The image has too many pixels to be shown.")
    try:
        image = image.convert("RGB")
    except (OSError, SyntaxError) as error:
        raise ValueError(f"The image is broken: {error}.") from error
    kept = max(1, round(min(image.size) * crop_fraction))
    left, top = (image.width - kept) // 2, (image.height - kept) // 2
    image = image.crop((left, top, left + kept, top + kept))
    return ImageOps.contain(image, (side, side))


def _opened(contents):
    try:
        return Image.open(io.BytesIO(contents), formats=KINDS)
    except Image.DecompressionBombError as error:
        raise _too_large("many more") from error
    except (
        UnidentifiedImageError,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        raise ValueError(
            f"The file must be an image ({', '.join(KINDS)}). "
            f"Received: {len(contents)} bytes that are none."
        ) from error


def _too_large(received):
    return ValueError(
        f"An image must have at most {MOST_PIXELS // 10**6} million pixels. "
        f"Received: {received}."
    )


def _png(image):
    file = io.BytesIO()
    try:
        image.convert("RGB").save(file, "PNG")
    except (OSError, SyntaxError) as error:
        raise ValueError(f"The image is broken: {error}.") from error
    return file.getvalue()
