"""Curves can be told apart, however many methods a study has."""

import re

from training.research.results.curves_drawing import (
    COLORS,
    PALE,
    curves_drawing,
)


def record(methods, losses=("c2", "proxy-nca")):
    curve = {"steps": [10, 20], "val_map_at_r": [0.1, 0.2]}
    rows = [
        {"row": loss, "method": method, "curve": curve}
        for method in methods
        for loss in losses
    ]
    return {"title": "a study", "rows": rows}


def panels(drawing):
    return re.findall(r'font-weight="bold">([^<]*)<', drawing)


def strokes(drawing):
    return re.findall(r'<polyline [^>]*stroke="([^"]*)"', drawing)


def test_few_methods_have_a_panel_a_loss():
    drawing = curves_drawing(record(("gap", "gsp", "ccp")))
    assert panels(drawing) == ["c2", "proxy-nca"]
    assert strokes(drawing) == [COLORS[m] for m in ("gap", "gsp", "ccp")] * 2


def test_more_methods_than_colors_have_a_panel_each():
    methods = ("gap", *(f"pooling-{k}" for k in range(12)))
    drawing = curves_drawing(record(methods))
    assert panels(drawing) == list(methods)
    found = strokes(drawing)
    # Average pooling's two in every panel, then the panel's own two.
    own = {color for color in found if color != PALE}
    assert len(found) == 4 * len(methods) and len(own) == 2
    assert found.count(PALE) == 2 * len(methods)


def test_nothing_is_drawn_of_one_evaluation():
    one = record(("gap",))
    for row in one["rows"]:
        row["curve"] = {"steps": [10], "val_map_at_r": [0.1]}
    assert curves_drawing(one) == ""
