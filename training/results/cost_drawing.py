"""What a pooling gains against what it costs, as one SVG for a page.

Drawn here and not by a plotting library, as the curves are: the same records
give the same bytes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training.pictures.palette import BLACK, BLUE

OURS = "gsp"
BASELINE = "gap"
WIDTH, HEIGHT = 680, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 90, 34, 44
LINE = 13
"""Height of a name, and how far two of them have to be apart."""


def cost_drawing(study: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str:
    """Gain in MAP@R over average pooling against time: a panel a loss.

    Args:
        study: A study's record, whose rows hold paired differences to average
            pooling with their 95 % interval.
        benchmark: The record of `training.benchmarks.pooling`; its first
            table is taken, times as multiples of a 1x1 convolution.

    Returns:
        The text of an SVG file; empty where no pooling has both numbers.
    """
    table = benchmark["tables"][0]
    times = {
        name: found["time"]
        for name, found in table["numbers"]["poolings"].items()
    }
    panels: dict[str, list[tuple]] = {}
    for row in study["rows"]:
        gain = row["differences"].get(BASELINE)
        if gain and row["method"] in times:
            panels.setdefault(row["row"], []).append(
                (row["method"], times[row["method"]], gain)
            )
    if not panels:
        return ""
    title = f"MAP@R gained over average pooling against time, {study['title']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {WIDTH} {HEIGHT * len(panels)}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{title}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, (loss, points) in enumerate(panels.items()):
        parts.append(f'<g transform="translate(0 {HEIGHT * place})">')
        parts += _panel(loss, sorted(points, key=_time), table["title"])
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _time(point):
    return point[1]


def _panel(loss, points, case):
    lowest = min(0.0, *(gain["low"] for *_, gain in points))
    highest = max(0.0, *(gain["high"] for *_, gain in points))
    first, last = (math.log10(points[place][1]) for place in (0, -1))
    span = max(last - first, 0.3)
    bottom = HEIGHT - BOTTOM

    def x(time):
        share = (math.log10(time) - first) / span
        return LEFT + 10 + (WIDTH - LEFT - RIGHT - 10) * share

    def y(gain):
        share = (highest - gain) / max(highest - lowest, 1e-6)
        return TOP + (bottom - TOP) * share

    parts = [
        f'<text x="{LEFT}" y="18" font-weight="bold">{loss}</text>',
        f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - 20}" fill="none" '
        'stroke="black"/>',
        f'<path d="M{LEFT} {y(0.0):.1f}H{WIDTH - 20}" stroke="black" '
        'stroke-dasharray="4 3"/>',
        f'<text x="{WIDTH - 20}" y="{bottom + 34}" text-anchor="end">'
        f"time, multiples of a 1x1 convolution; {case}</text>",
        f'<text x="{LEFT}" y="{bottom + 34}">MAP@R over average pooling, '
        "points</text>",
    ]
    for time in _marks(points[0][1], points[-1][1]):
        parts.append(
            f'<text x="{x(time):.1f}" y="{bottom + 16}" '
            f'text-anchor="middle">{time:g}</text>'
        )
    for gain in sorted({lowest, 0.0, highest}):
        parts.append(
            f'<text x="{LEFT - 4}" y="{y(gain) + 4:.1f}" '
            f'text-anchor="end">{100 * gain:+.1f}</text>'
        )
    places = [(x(time), y(gain["difference"])) for _, time, gain in points]
    for (name, _, gain), (across, down), label in zip(
        points, places, _apart(places), strict=True
    ):
        colour = BLUE if name.startswith(OURS) else BLACK
        parts.append(
            f'<path d="M{across:.1f} {y(gain["low"]):.1f}V'
            f'{y(gain["high"]):.1f}" stroke="{colour}"/>'
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5" '
            f'fill="{colour}"/><text x="{across + 6:.1f}" '
            f'y="{label + 4:.1f}" fill="{colour}">{name}</text>'
        )
    return parts


def _marks(first: float, last: float) -> list[float]:
    """1, 2, 5, 10, ... within the times, these themselves where none is."""
    marks = [
        digit * 10.0**power
        for power in range(-3, 5)
        for digit in (1, 2, 5)
        if first <= digit * 10.0**power <= last
    ]
    return marks or [first, last]


def _apart(places: Sequence[tuple[float, float]]) -> list[float]:
    """Heights of the names: moved where they would lie over another."""
    taken: list[tuple[float, float]] = []
    heights = []
    for across, down in places:
        for step in range(2 * len(places)):
            # In turn below and above, further and further.
            height = down + (step + 1) // 2 * LINE * (-1) ** step
            if all(
                abs(across - other) > RIGHT or abs(height - level) >= LINE
                for other, level in taken
            ):
                break
        taken.append((across, height))
        heights.append(height)
    return heights
