"""The papers' numbers stand beside ours where they are comparable."""

import pytest

from training.research.results.published_results import (
    PublishedResult,
    read_published_results,
    shipped_results,
)
from training.research.results.study_table import study_tables

FAIR = {"protocol": "fair", "backbone": "bn-inception"}


@pytest.mark.parametrize(
    "dataset, loss, method, part, size, percent, source",
    [
        # GSP, table 2 and table 1; CCP, table 1; XML, table 1; thesis 5.1.
        ("cub", "c2", "gap", "average", 128, 20.58, "GSP"),
        ("sop", "c2", "gap", "concatenated", 512, 45.85, "GSP"),
        ("cub", "c2", "gsp", "average", 128, 20.85, "GSP"),
        ("cub", "c2", "xml", "average", 128, 22.03, "XML"),
        ("cars", "c1", "xbm", "average", 128, None, "GSP"),
        ("sop", "c1", "ccp", "average", 128, 48.07, "CCP"),
        ("cub", "c1", "ccp-gsp-zsr", "average", 128, None, "thesis"),
    ],
)
def test_a_cell_has_the_number_of_its_own_paper(
    dataset, loss, method, part, size, percent, source
):
    found = shipped_results().find(
        (dataset, loss, method, part, "map_at_r"), embedding_size=size, **FAIR
    )
    assert found.source == source
    if percent is not None:
        assert found.percent == percent


def test_numbers_of_another_protocol_are_not_compared():
    place = "cub", "c1", "xbm", "single", "precision_at_1"
    results = shipped_results()
    assert results.find(place, protocol="fair") is None
    found = results.find(
        place, protocol="conventional", backbone="bn-inception"
    )
    assert found is not None
    assert results.find(place, backbone="mobilenet-v2") is None


def test_the_shipped_list_is_plausible():
    numbers = shipped_results().numbers
    assert sum(map(len, numbers.values())) > 800
    for (dataset, loss, method, part, measure), found in numbers.items():
        if measure != "map_at_r":
            continue
        first = numbers.get((dataset, loss, method, part, "precision_at_1"))
        for ours in found:
            theirs = [
                one.percent
                for one in first or ()
                if (one.source, one.protocol, one.backbone)
                == (ours.source, ours.protocol, ours.backbone)
                and one.embedding_size == ours.embedding_size
            ]
            assert not theirs or ours.percent < max(theirs)


def test_a_list_of_ones_own_may_say_more(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        "dataset,loss,method,part,measure,percent,protocol,deviation,source\n"
        "cub,c2,ccp-gsp,single,map_at_r,26.5,fair,0.2,mine\n"
        "cub,c2,ccp-gsp,single,map_at_r,27.5,conventional,,mine\n"
    )
    found = read_published_results(path)
    place = "cub", "c2", "ccp-gsp", "single", "map_at_r"
    assert found.find(place, protocol="fair") == PublishedResult(
        26.5, source="mine", protocol="fair", deviation=0.2
    )
    assert found.find(place, protocol="conventional").percent == 27.5


def test_poolings_stand_beside_what_the_papers_print_of_them():
    row = {
        "row": "c2",
        "loss": "c2",
        "protocol": "fair",
        "backbone": "mobilenet-v2",
        "models": 1,
        "is_finished": True,
        "seconds": 9.0,
        "activity": {},
        "differences": {},
        "parts": {
            "average": {
                "embedding_size": 128,
                **dict.fromkeys(
                    ("map_at_r", "precision_at_r", "precision_at_1"),
                    {"mean": 0.25, "std": None, "values": [0.25]},
                ),
            }
        },
    }
    record = {
        "study": "poolings-birds50-frozen",
        "title": "t",
        "dataset": "folder",
        "rows": [
            row | {"method": word} for word in ("gap", "gsp", "otk-large", "x")
        ],
    }
    table = study_tables(record, shipped_results())
    lines = {
        line.split("|")[2].strip(): [
            cell.strip() for cell in line.split("|")[-3:-1]
        ]
        for line in table.splitlines()
        if line.startswith("| c2")
    }
    # GSP's Table 4.
    assert lines == {
        "gap": ["8.09", "20.58"],
        "gsp": ["22.68", "21.52"],
        "otk-large": ["", "20.88"],
        "x": ["", ""],
    }
    assert "papers, CUB" in table and "Table 4" in table
    plain = study_tables(record | {"study": "birds50"}, shipped_results())
    assert "papers, CUB" not in plain
