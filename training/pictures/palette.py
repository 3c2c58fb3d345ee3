"""One look for all pictures: Okabe-Ito colors, one for each method."""

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
GRAY = "#999999"
WINE = "#661100"

METHODS = {
    "GAP": BLACK,
    "GSP": BLUE,
    "GSP+ZSR": VERMILION,
    "XML": GREEN,
    "CCP": ORANGE,
}
"""Color of each method, the same in every picture."""

PROTOTYPES = (ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE, BLACK)
"""Colors of few prototypes, where each has to be told from the others."""

RIGHT, WRONG, QUERY = BLUE, VERMILION, BLACK
"""Frames of retrieved images; blue and red-orange, never green and red."""

STYLE = {
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.dpi": 120,
}
"""Text that stays readable at half size."""


@contextmanager
def picture(
    path: Path, rows: int = 1, columns: int = 1, **subplots: Any
) -> Iterator[Any]:
    """Draws into a PNG file, on any machine, with or without a display.

    Args:
        path: File to write; its folder is made.
        rows: Rows of axes.
        columns: Columns of axes.
        **subplots: Further arguments of `matplotlib.pyplot.subplots`.

    Yields:
        The axes, an array (rows, columns).
    """
    # Not pyplot: it would look for a display and keep every figure.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(
            figsize=subplots.pop("figsize", None), layout="constrained"
        )
        FigureCanvasAgg(figure)
        yield figure.subplots(rows, columns, squeeze=False, **subplots)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
