"""What poolings gain and cost is drawn from two records, and from no more."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from training.research.results.cost_drawing import cost_drawing
from training.research.results.pages import write_pages
from training.research.results.records import write_record

TIMES = {"gap": 0.4, "gsp": 1.2, "gmp": 1.21, "solar": 9.0}


def benchmark(times=TIMES):
    found = {name: {"time": time} for name, time in times.items()}
    return {"tables": [{"title": "a case", "numbers": {"poolings": found}}]}


def study(gains):
    rows = [
        {
            "row": loss,
            "method": method,
            "differences": {
                "gap": {
                    "difference": gain,
                    "low": gain - 0.01,
                    "high": gain + 0.01,
                }
            },
        }
        for loss, method, gain in gains
    ]
    baseline = {"row": "c2", "method": "gap", "differences": {}}
    return {"title": "a study", "rows": [baseline, *rows]}


def texts(drawing):
    root = ElementTree.fromstring(drawing)
    return [one for one in root.iter() if one.tag.endswith(("text", "tspan"))]


def test_a_pooling_with_both_numbers_is_a_point():
    gains = [("c2", "gsp", 0.02), ("c2", "solar", -0.03), ("c2", "x", 0.1)]
    drawing = cost_drawing(study(gains), benchmark())
    words = [one.text for one in texts(drawing)]
    assert {"c2", "gsp", "solar"} <= {*words} and "x" not in words
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing)
    # Average pooling is the origin.
    first, gsp, solar = [(float(x), float(y)) for x, y in circles]
    # Dearer is further right, better is higher up.
    assert first[0] < gsp[0] < solar[0]
    assert gsp[1] < first[1] < solar[1]
    assert any("a case" in (word or "") for word in words)
    assert {"-4", "-3", "-1", "+0", "+1", "+3"} <= {*words}


def test_heads_as_they_are_trained_come_before_layers_alone():
    layers, heads = benchmark(), benchmark({"gap": 1.0, "gsp": 0.5})
    heads["tables"][0]["title"] = "heads"
    heads["tables"][0]["numbers"]["is_head"] = True
    both = {"tables": [*layers["tables"], *heads["tables"]]}
    gains = study([("c2", "gsp", 0.02)])
    assert cost_drawing(gains, both) == cost_drawing(gains, heads)
    assert cost_drawing(gains, both) != cost_drawing(gains, layers)


def test_names_do_not_lie_over_each_other():
    gains = [("c2", name, 0.02) for name in ("gsp", "gmp", "solar")]
    drawing = cost_drawing(study(gains), benchmark())
    names = [one for one in texts(drawing) if one.text in TIMES]
    assert len(names) == 4
    boxes = [
        (
            float(one.get("x")),
            float(one.get("y")) - 10,
            float(one.get("x")) + 6 * len(one.text),
            float(one.get("y")),
        )
        for one in names
    ]
    for one, other in combinations(boxes, 2):
        assert (
            one[2] <= other[0]
            or other[2] <= one[0]
            or one[3] <= other[1]
            or other[3] <= one[1]
        )
    width, height = map(
        float, re.search(r'"0 0 (\d+) (\d+)"', drawing).groups()
    )
    assert all(
        0 <= left and right <= width and 0 <= top and bottom <= height
        for left, top, right, bottom in boxes
    )


def test_a_crowd_keeps_its_names_apart():
    times = {f"pooling-{k}": 1.0 + 0.01 * k for k in range(12)}
    gains = [("c2", name, 0.001 * k) for k, name in enumerate(times)]
    drawing = cost_drawing(study(gains), benchmark(times))
    places = [
        (float(one.get("x")), float(one.get("y")))
        for one in texts(drawing)
        if one.text in times
    ]
    assert len(places) == 12
    for one, other in combinations(places, 2):
        assert abs(one[0] - other[0]) >= 50 or abs(one[1] - other[1]) >= 13


@pytest.mark.parametrize("gains", [[], [("c2", "x", 0.1)]])
def test_nothing_is_drawn_of_nothing(gains):
    assert cost_drawing(study(gains), benchmark()) == ""


def test_a_page_of_poolings_shows_it(tmp_path):
    record = study([("c2", "gsp", 0.02), ("proxy-nca", "gsp", 0.01)])
    about = {"environment": {"python": "3", "packages": {}, "commit": None}}
    score = {"mean": 0.25, "std": None, "values": [0.25]}
    part = {
        "embedding_size": 8,
        **dict.fromkeys(
            ("map_at_r", "precision_at_r", "precision_at_1"), score
        ),
    }
    rows = [
        row
        | {
            "loss": row["row"],
            "protocol": "single",
            "models": 1,
            "is_finished": True,
            "steps": 20,
            "evaluations": 2,
            "seconds": 9.0,
            "parts": {"single": part},
            "activity": {},
            "curve": {"steps": [], "val_map_at_r": []},
            "selected_on": "validation classes",
        }
        for row in record["rows"]
    ]
    for row in rows:
        for gain in row["differences"].values():
            gain["num_seeds"] = 1
    record |= {
        "kind": "study",
        "study": "poolings-birds50",
        "dataset": "folder",
        "rows": rows,
        **about,
    }
    write_record(tmp_path / "poolings-birds50.json", record)
    write_pages(tmp_path)
    assert "-cost.svg" not in (tmp_path / "poolings-birds50.md").read_text()
    costs = {
        "kind": "benchmark",
        "title": "Poolings",
        "command": "x",
        "about": "",
        "settings": {},
        "device": "x",
        "load": None,
        **about,
        "tables": [
            {"headings": ["a"], "rows": [["b"]], **benchmark()["tables"][0]}
        ],
    }
    write_record(tmp_path / "pooling.json", costs)
    write_pages(tmp_path)
    page = (tmp_path / "poolings-birds50.md").read_text()
    assert "](poolings-birds50-cost.svg)" in page
    drawing = (tmp_path / "poolings-birds50-cost.svg").read_text()
    assert drawing.count("<circle") == 2 * len(("gap", "gsp"))
