"""Style of all pictures: Okabe-Ito colors."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"

PROTOTYPES = (ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE, BLACK)
"""Colors that tell a few prototypes apart."""

STYLE = {
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.dpi": 120,
}
"""Matplotlib settings; text stays readable at half size."""


@contextmanager
def picture(
    path: Path | io.BytesIO, rows: int = 1, columns: int = 1, **subplots: Any
) -> Iterator[Any]:
    """Draws into a PNG file, whose folder is made, or a buffer.

    Yields an array `(rows, columns)` of axes. `subplots` are `figsize` and
    arguments of `matplotlib.figure.Figure.subplots`.
    """
    # Not pyplot, which looks for a display and keeps every figure.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(
            figsize=subplots.pop("figsize", None), layout="constrained"
        )
        FigureCanvasAgg(figure)
        yield figure.subplots(rows, columns, squeeze=False, **subplots)
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
