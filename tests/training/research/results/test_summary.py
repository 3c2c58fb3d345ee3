"""The README's table says what the studies' records say."""

import pytest

from training.research.results.pages import README, readme
from training.research.results.summary import BEGIN, END, summary, with_summary


def record(**differences):
    return {
        "rows": [
            {
                "row": row,
                "method": method,
                "differences": {"gap": gain},
                "is_finished": row != "c1",
            }
            for row, method, gain in differences["rows"]
        ]
    }


def gain(difference, low, high):
    return {"difference": difference, "low": low, "high": high}


def test_a_row_is_a_method_and_a_column_a_loss():
    table = summary(
        {
            "emoji": record(
                rows=[
                    ("c2", "ccp", gain(0.0141, -0.0051, 0.0334)),
                    ("ms", "ccp", gain(0.0154, 0.0101, 0.0206)),
                    ("ms", "gsp", gain(-0.02, -0.03, -0.01)),
                    ("triplet", "gsp", gain(0.1, 0.0, 0.2)),
                    # Its other seeds are missing.
                    ("c1", "gsp", gain(0.1, 0.0, 0.2)),
                ]
            ),
            "pooling": {"kind": "benchmark"},
        }
    )
    lines = table.splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| [emoji, fine-tuned](emoji.md) | GSP |  |  |")
    assert "**-2.00 [-3.00, -1.00]**" in lines[2]
    assert "| +1.41 [-0.51, +3.34] | **+1.54 [+1.01, +2.06]** |" in lines[3]


def test_the_first_row_is_what_the_loss_itself_adds():
    rows = record(rows=[("c2", "gsp", gain(0.1, 0.0, 0.2)), ("c2", "gap", 0)])
    gap = rows["rows"][1]
    gap["differences"] = {"untrained": gain(-0.05, -0.06, -0.04)}
    first, second = summary({"emoji": rows}).splitlines()[2:]
    assert "averaging, over the untrained network" in first
    assert "**-5.00 [-6.00, -4.00]**" in first
    assert "| GSP |" in second


def test_nothing_is_made_of_nothing():
    assert summary({}) == ""
    assert summary({"emoji": record(rows=[("c2", "gap", None)])}) == ""


def test_a_page_keeps_what_stands_around_the_table():
    page = f"a\n\n{BEGIN}\n\nold\n\n{END}\n\nb\n"
    found = with_summary(page, "| [x](x.md) |", "docs")
    assert found == f"a\n\n{BEGIN}\n\n| [x](docs/x.md) |\n\n{END}\n\nb\n"
    assert with_summary(found, "| [x](x.md) |", "docs") == found


@pytest.mark.parametrize(
    "page", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {END} {END}"]
)
def test_marks_that_are_missing_are_named(page):
    with pytest.raises(ValueError, match="must hold"):
        with_summary(page, "", "docs")


def test_the_readme_has_the_table_of_the_records():
    assert README.read_text(encoding="utf-8") == readme(), (
        "run `python -m training.research.results`"
    )
