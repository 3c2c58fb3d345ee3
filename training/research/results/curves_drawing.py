"""Learning curves of a study as one SVG, the same bytes for the same record.

Drawn here and not by a plotting library, whose files differ from version to
version: a page and its record must be comparable.
"""

from collections.abc import Mapping
from typing import Any

from training.pictures.palette import (
    BLACK,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WINE,
    YELLOW,
)

COLORS = {
    "gap": BLACK,
    "gsp": BLUE,
    "gsp-zsr": VERMILION,
    "zsr": PURPLE,
    "xml": GREEN,
    "xbm": PURPLE,
    "single": SKY,
    "ccp": ORANGE,
    "ccp-recent": GRAY,
    "ccp-gsp": YELLOW,
    "learned": WINE,
}
BASELINE = "gap"
PALE = "#cccccc"
WIDTH, HEIGHT, MARGIN, COLUMNS, MANY_COLUMNS = 300, 200, 40, 3, 5
WORD, LINE = 100, 18
"""Width and height of a method's name above the panels."""


def curves_drawing(results: Mapping[str, Any]) -> str:
    """Validation MAP@R against steps: a panel a loss, a line a method.

    With more methods than colors it is a panel a method, a line a loss, and
    in each panel average pooling's lines are pale.

    Args:
        results: A study's record.

    Returns:
        The text of an SVG file; empty where no curve has two points.
    """
    drawn = [
        row for row in results["rows"] if len(row["curve"]["val_map_at_r"]) > 1
    ]
    if not drawn:
        return ""
    scores = [s for row in drawn for s in row["curve"]["val_map_at_r"]]
    low, high = min(scores), max(max(scores), min(scores) + 1e-3)
    methods = _words(drawn, "method")
    # Too many colors to tell apart: a panel a method, a color a loss.
    by_method = len(methods) > len(set(COLORS.values()))
    title, line = ("method", "row") if by_method else ("row", "method")
    panels: dict[str, list] = {name: [] for name in _words(drawn, title)}
    for row in drawn:
        panels[row[title]].append(row)
    lines = _words(drawn, line)
    colors = _colors(lines)
    compared = _baseline(drawn) if by_method else []
    columns = min(MANY_COLUMNS if by_method else COLUMNS, len(panels))
    words = WIDTH * columns // WORD
    top = LINE * -(-len(lines) // words) + 12
    height = HEIGHT * -(-len(panels) // columns) + top
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {WIDTH * columns} {height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>Validation MAP@R against steps, {results['title']}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        *_legend(colors, words),
    ]
    for number, (name, rows) in enumerate(panels.items()):
        left = WIDTH * (number % columns)
        down = top + HEIGHT * (number // columns)
        shown = [(row, colors[row[line]]) for row in rows]
        parts.append(f'<g transform="translate({left} {down})">')
        parts += _panel(name, compared + shown, low, high)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _words(rows, key):
    return list(dict.fromkeys(row[key] for row in rows))


def _baseline(rows):
    """Average pooling's curves, gray in every method's panel."""
    return [(row, PALE) for row in rows if row["method"] == BASELINE]


def _colors(methods):
    """Their own, or one after the other: then names tell more than colors."""
    every = list(dict.fromkeys(COLORS.values()))
    return {
        method: COLORS.get(method, every[place % len(every)])
        for place, method in enumerate(methods)
    }


def _legend(colors, words):
    return [
        f'<text x="{10 + WORD * (place % words)}" '
        f'y="{LINE * (place // words + 1)}" fill="{color}">{method}</text>'
        for place, (method, color) in enumerate(colors.items())
    ]


def _panel(name, shown, low, high):
    inner_width, inner_height = WIDTH - 1.5 * MARGIN, HEIGHT - 1.5 * MARGIN
    last = max(row["curve"]["steps"][-1] for row, _ in shown)

    def x(step):
        return MARGIN + inner_width * step / last

    def y(score):
        return 0.5 * MARGIN + inner_height * (high - score) / (high - low)

    bottom = HEIGHT - MARGIN
    parts = [
        f'<text x="{MARGIN}" y="14" font-weight="bold">{name}</text>',
        f'<path d="M{MARGIN} {0.5 * MARGIN:g}V{bottom}'
        f'H{WIDTH - 0.5 * MARGIN:g}" fill="none" stroke="black"/>',
        f'<text x="{WIDTH - 0.5 * MARGIN:g}" y="{bottom + 16}" '
        f'text-anchor="end">{last} steps</text>',
    ]
    parts += [
        f'<text x="{MARGIN - 4}" y="{y(score) + 4:.1f}" '
        f'text-anchor="end">{score:.2f}</text>'
        for score in (low, high)
    ]
    for row, color in shown:
        points = " ".join(
            f"{x(step):.1f},{y(score):.1f}"
            for step, score in zip(
                row["curve"]["steps"], row["curve"]["val_map_at_r"], strict=True
            )
        )
        parts.append(
            f'<polyline points="{points}" fill="none" '
            f'stroke="{color}" stroke-width="1.5"/>'
        )
    return parts
