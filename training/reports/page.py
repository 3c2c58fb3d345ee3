"""Writes one HTML page that opens from disk: headings, tables, pictures."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.framed_image import encoded_image
from training.runs.run_directory import write_text


@dataclass(frozen=True)
class Section:
    """A heading, sentences, a table, pictures and cards to decide on.

    `table` is a header and its rows; its first column names a row, the others
    are right-aligned unless `is_text`. `pictures` are pairs of a `data:`
    address and what it shows.
    """

    heading: str
    sentences: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    pictures: Sequence[tuple[str, str]] = ()
    cards: Sequence[dict[str, Any]] = ()
    is_text: bool = False


def write_page(
    path: Path,
    mark: str,
    title: str,
    lead: str,
    sections: Sequence[Section],
    classes: Sequence[str] = (),
) -> None:
    """Renders a page; `mark` is its first line, `classes` names to choose."""
    import jinja2

    template = Path(__file__).with_name("page.html").read_text()
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.from_string(template).render(
        mark=mark, title=title, lead=lead, sections=sections, classes=classes
    )
    write_text(path, page)


def picture_address(pixels: np.ndarray, side: int) -> str:
    """Encodes an image, at most `side` pixels, as a `data:` address."""
    return _address(encoded_image(pixels, side=side), "webp")


def drawn_address(drawn: io.BytesIO) -> str:
    """Returns the `data:` address of a picture of `training.pictures`."""
    return _address(drawn.getvalue(), "png")


def _address(contents, form):
    return f"data:image/{form};base64,{base64.b64encode(contents).decode()}"
