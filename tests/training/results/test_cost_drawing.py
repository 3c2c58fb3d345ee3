"""What poolings gain and cost is drawn from two records, and from no more."""

import re
from xml.etree import ElementTree

import pytest

from training.results.cost_drawing import cost_drawing
from training.results.pages import write_pages
from training.results.records import write_record

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
    return [one for one in root.iter() if one.tag.endswith("text")]


def test_a_pooling_with_both_numbers_is_a_point():
    gains = [("c2", "gsp", 0.02), ("c2", "solar", -0.03), ("c2", "x", 0.1)]
    drawing = cost_drawing(study(gains), benchmark())
    words = [one.text for one in texts(drawing)]
    assert {"c2", "gsp", "solar"} <= {*words} and "x" not in words
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing)
    (left, high), (right, low) = [(float(x), float(y)) for x, y in circles]
    # Dearer is further right, better is higher up.
    assert left < right and high < low
    assert any("a case" in (word or "") for word in words)
    assert "+3.0" in words and "-4.0" in words


def test_names_do_not_lie_over_each_other():
    gains = [("c2", name, 0.02) for name in ("gsp", "gmp", "solar")]
    drawing = cost_drawing(study(gains), benchmark())
    heights = {
        one.text: float(one.get("y"))
        for one in texts(drawing)
        if one.text in TIMES
    }
    assert abs(heights["gsp"] - heights["gmp"]) >= 13


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
    assert drawing.count("<circle") == 2
