"""Render HTML pages that load nothing from the network."""

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np

SHARED = Path(__file__).parent / "templates"


def rendered_page(template: Path, **values: Any) -> str:
    """Renders `NAME.html` with the shared style and script.

    `NAME.css` and `NAME.js` beside the template follow the shared ones.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = breakable
    css = [SHARED / "page.css", template.with_suffix(".css")]
    scripts = [SHARED / "page.js", template.with_suffix(".js")]
    return environment.get_template(template.name).render(
        values,
        css="".join(path.read_text() for path in css if path.exists()),
        scripts=[path.read_text() for path in scripts if path.exists()],
    )


def breakable(text: Any) -> Any:
    """Escapes text, and lets lines break in names only after their signs."""
    from markupsafe import Markup

    return Markup("<wbr>").join(re.split(r"(?<=[-_,=/])(?=\S)", str(text)))


def encoded_map(weights: np.ndarray, largest: float) -> str:
    """Encodes weights as one byte a place, base64; `largest` is 255."""
    levels = np.clip(weights / max(largest, 1e-12), 0, 1) * 255
    return base64.b64encode(np.round(levels).astype("uint8").tobytes()).decode()
