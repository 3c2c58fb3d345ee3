"""Check an uploaded image before it is decoded."""

import io
import warnings

from PIL import Image, ImageOps

from training.browsing.exports import embedded_square

MAX_BYTES = 20 * 2**20
MAX_PIXELS = 40_000_000
FORMATS = ("JPEG", "PNG", "BMP", "WEBP")


def checked_image(contents: bytes) -> bytes:
    """Returns an image that an export reads.

    The size is read from the file's header, so that an image that would fill
    the memory is refused before it is decoded.

    Args:
        contents: an uploaded file.

    Returns:
        The file itself; a PNG of a WebP image, which exports do not read.

    Raises:
        ValueError: too many bytes or pixels, or not an image.
    """
    if len(contents) > MAX_BYTES:
        raise ValueError(
            f"An image must have at most {MAX_BYTES // 2**20} MB. "
            f"Received: {len(contents) / 2**20:.1f} MB."
        )
    image = _opened(contents)
    if image.format != "WEBP":
        return contents
    file = io.BytesIO()
    _decoded(image).save(file, "PNG")
    return file.getvalue()


def shown_image(
    contents: bytes, crop_fraction: float | None, side: int
) -> bytes:
    """Returns the part of an image that an export embeds, as WebP.

    Args:
        contents: an encoded image.
        crop_fraction: see `embedded_square`.
        side: largest side of the result, pixels.

    Raises:
        ValueError: not a whole image, or too many pixels.
    """
    image = _decoded(_opened(contents))
    square = embedded_square(image.width, image.height, crop_fraction)
    image = image.crop(square)
    file = io.BytesIO()
    ImageOps.contain(image, (side, side)).save(file, "WEBP", quality=85)
    return file.getvalue()


def _opened(contents):
    """Reads the header of an image."""
    try:
        with warnings.catch_warnings():
            # Large images are refused below, with a limit of our own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(contents), formats=FORMATS)
        size = f"{image.width} x {image.height}"
        is_too_large = image.width * image.height > MAX_PIXELS
    except Image.DecompressionBombError as error:
        # Pillow refuses such a file before it returns the size.
        size, is_too_large = str(error), True
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(
            f"The file must be an image ({', '.join(FORMATS)}). "
            f"Received: {len(contents)} bytes in another format."
        ) from error
    if is_too_large:
        raise ValueError(
            f"An image must have at most {MAX_PIXELS // 10**6} million "
            f"pixels. Received: {size}."
        )
    return image


def _decoded(image):
    try:
        return image.convert("RGB")
    except (OSError, SyntaxError) as error:
        raise ValueError(f"The image is damaged: {error}.") from error
