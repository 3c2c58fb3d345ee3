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
WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 50, 100, 34, 44
LETTER, LINE = 6.7, 13
"""Width of a letter, taken large, and height of a name."""
RADIUS = 3.5
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Between two numbers of the axis."""


def cost_drawing(study: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str:
    """Gain in MAP@R over average pooling against time: a panel a loss.

    Args:
        study: A study's record, whose rows hold paired differences to average
            pooling with their 95 % interval.
        benchmark: The record of `training.research.benchmarks.pooling`; the first of
            its tables of heads is taken, of none its first, times as
            multiples of a 1x1 convolution.

    Returns:
        The text of an SVG file; empty where no pooling has both numbers.
    """
    tables = benchmark["tables"]
    heads = (one for one in tables if one["numbers"].get("is_head"))
    table = next(heads, tables[0])
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
    if BASELINE in times:
        nothing = dict.fromkeys(("difference", "low", "high"), 0.0)
        for points in panels.values():
            points.append((BASELINE, times[BASELINE], nothing))
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
        f'<text x="{LEFT}" y="18"><tspan font-weight="bold">{loss}</tspan>: '
        "MAP@R over average pooling, points, with 95 % intervals</text>",
        f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - 10}" fill="none" '
        'stroke="black"/>',
        f'<path d="M{LEFT} {y(0.0):.1f}H{WIDTH - 10}" stroke="black" '
        'stroke-dasharray="4 3"/>',
        f'<text x="{WIDTH - 10}" y="{bottom + 34}" text-anchor="end">'
        f"time, multiples of a 1x1 convolution; {case}</text>",
    ]
    for time in _marks(points[0][1], points[-1][1]):
        parts.append(
            f'<text x="{x(time):.1f}" y="{bottom + 16}" '
            f'text-anchor="middle">{time:g}</text>'
        )
    for gain in _levels(lowest, highest):
        parts.append(
            f'<text x="{LEFT - 4}" y="{y(gain) + 4:.1f}" '
            f'text-anchor="end">{100 * gain:+g}</text>'
        )
    places = [(x(time), y(gain["difference"])) for _, time, gain in points]
    names = [name for name, *_ in points]
    labels = _labels(names, places, bottom)
    for (name, _, gain), (across, down), (left, base) in zip(
        points, places, labels, strict=True
    ):
        color = BLUE if name.startswith(OURS) else BLACK
        end = left if left > across else left + LETTER * len(name)
        parts.append(
            f'<path d="M{across:.1f} {y(gain["low"]):.1f}V'
            f'{y(gain["high"]):.1f}" stroke="{color}" opacity="0.4"/>'
            f'<path d="M{across:.1f} {down:.1f}L{end:.1f} {base - 4:.1f}" '
            f'stroke="{color}" stroke-width="0.5"/>'
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{RADIUS}" '
            f'fill="{color}"/><text x="{left:.1f}" '
            f'y="{base:.1f}" fill="{color}">{name}</text>'
        )
    return parts


def _levels(lowest: float, highest: float) -> list[float]:
    """Round numbers within a range, nine at most."""
    step = next((s for s in STEPS if highest - lowest <= 8 * s), STEPS[-1])
    first, last = math.ceil(lowest / step), math.floor(highest / step)
    return [round(step * k, 4) for k in range(first, last + 1)]


def _marks(first: float, last: float) -> list[float]:
    """1, 2, 5, 10, ... within the times, these themselves where none is."""
    marks = [
        digit * 10.0**power
        for power in range(-3, 5)
        for digit in (1, 2, 5)
        if first <= digit * 10.0**power <= last
    ]
    return marks or [first, last]


def _labels(
    names: Sequence[str], places: Sequence[tuple[float, float]], bottom: float
) -> list[tuple[float, float]]:
    """Where names begin, (left, base line): as near as leaves all readable."""
    taken = [
        (x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places
    ]
    found = []
    for name, (across, down) in zip(names, places, strict=True):
        width = LETTER * len(name)
        free = [
            (left, base)
            for left, base in _around(across, down, width)
            if left >= LEFT
            and left + width <= WIDTH
            and TOP <= base - LINE + 3
            and base + 3 <= bottom
            and not any(
                _overlap(_box(left, base, width), other) for other in taken
            )
        ]
        left, base = free[0] if free else (across + 6, down + 4)
        taken.append(_box(left, base, width))
        found.append((left, base))
    return found


def _around(across, down, width):
    """Places for a name around a point, the nearest first."""
    for far in range(40):
        for turn in (1, -1):
            base = down + 4 + turn * far * LINE / 2
            aside = 6 + far
            yield across + aside, base
            yield across - aside - width, base


def _box(left, base, width):
    return left, base - LINE + 3, left + width, base + 3


def _overlap(one, other):
    return (
        one[0] < other[2]
        and other[0] < one[2]
        and one[1] < other[3]
        and other[1] < one[3]
    )
