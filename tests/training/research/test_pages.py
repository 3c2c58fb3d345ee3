"""Pages are made of records alone, and are those of today's records."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from training.research.pages import (
    DATA,
    DOCS,
    PAGES,
    add_record,
    draw_missing,
    main,
    pages,
    summary,
    write_pages,
)
from training.research.report import (
    CommandSettings,
    Table,
    facts_table,
    mean_and_deviation,
    read_record,
    run_measurement,
    spread,
    write_record,
)
from training.research.studies import STUDIES

GAIN = {"difference": 0.02, "low": 0.01, "high": 0.03, "num_seeds": 2}
SCORE = {"mean": 0.25, "std": 0.01, "values": [0.24, 0.26]}
SCORES = dict.fromkeys(("map_at_r", "precision_at_r", "precision_at_1"), SCORE)


def study(**differences):
    row = {
        "row": "c2",
        "loss": "c2",
        "models": 2,
        "steps": 20,
        "seconds": 90.0,
        "embedding_size": 8,
        "scores": SCORES,
        "activity": {"memory_fill": [0.5, 1.0]},
        "curve": {"steps": [10, 20], "val_map_at_r": [0.1, 0.2]},
        "differences": differences,
    }
    return {
        "kind": "study",
        "study": "emoji",
        "title": "a study",
        "about": "",
        "command": "python -m training.research.study emoji",
        "dataset": "folder",
        "environment": {"python": "3", "packages": {"keras": "1"}},
        "rows": [row | {"method": "gap"}, row | {"method": "gsp"}],
    }


def test_pages_are_those_of_the_records():
    made = pages()
    assert {path.name for path in DOCS.glob("*.md")} == set(made)
    for name, text in made.items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, name


def test_every_record_is_read_by_a_page_and_every_picture_shown():
    made = "".join(pages().values())
    records = {path.stem for path in DOCS.glob("*.json")}
    # Studies that are not trained yet may have their place already.
    known = records | {*STUDIES}
    assert {one for page in PAGES.values() for one in page.records} <= known
    assert {record for record, *_ in DATA} <= known
    for picture in DOCS.glob("*.png"):
        assert f"({picture.name})" in made, picture
    for target in {part.split(")")[0] for part in made.split("](")[1:]}:
        if not target.startswith("http"):
            assert (DOCS / target).exists(), target


def test_a_study_makes_a_page_a_picture_and_a_row_of_the_index(tmp_path):
    record = study(gap=GAIN, untrained=GAIN | {"low": -0.01})
    write_record(tmp_path / "clutter-pretrained.json", record)
    (drawn,) = draw_missing(tmp_path)
    assert drawn.name == "clutter-pretrained.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")
    changed = {path.name for path in write_pages(tmp_path)}
    assert changed == {"clutter.md", "index.md"}
    page = (tmp_path / "clutter.md").read_text()
    assert "25.00 ± 1.00" in page and "memory 50%-100%" in page
    assert (
        "gap +2.00 [+1.00, +3.00]" in page
        and "(clutter-pretrained.png)" in page
    )
    index = (tmp_path / "index.md").read_text()
    assert "| GSP |  | **+2.00 [+1.00, +3.00]** |" in index
    assert "|  | +2.00 [-1.00, +3.00] |" in index
    assert write_pages(tmp_path) == []


def test_the_same_measurement_on_other_data_is_explained_once(tmp_path):
    seen = study() | {"title": "Transfer?", "about": "It is measured so."}
    seen["settings"] = {"data_dir": "cifar.zip"}
    unseen = seen | {"settings": {"data_dir": None}}
    write_record(tmp_path / "zero_shot_prediction_seen.json", seen)
    write_record(tmp_path / "zero_shot_prediction.json", unseen)
    page = pages(tmp_path)["zero_shot_prediction.md"]
    assert page.count("It is measured so.") == 1
    assert page.index("## Transfer?") < page.index("## The same on glyphs")


def test_a_new_record_is_drawn_again(tmp_path):
    source, docs = tmp_path / "gsp-pays.json", tmp_path / "docs"
    write_record(source, study(gap=GAIN))
    docs.mkdir()
    (docs / "gsp-pays.png").write_bytes(b"old")
    add_record(source, docs)
    write_pages(docs)
    assert (docs / "gsp-pays.png").read_bytes() != b"old"


def test_what_is_no_record_is_refused(tmp_path):
    for content in ("[]", "{", '{"kin": 1}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(SystemExit, match="A record must be"):
            main([str(tmp_path / "x.json"), "--docs", str(tmp_path / "docs")])


def test_every_number_of_the_summary_is_filled_in():
    text = summary({p.stem: read_record(p) for p in DOCS.glob("*.json")})
    assert len(text) > 1000 and "{" not in text
    assert summary({}) == ""


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    count: int = 3
    is_new: bool = True
    sizes: tuple[tuple[int, int], ...] = ((1, 2),)
    data: str | None = None
    SMALL = {"count": 1}


def test_a_benchmark_leaves_a_record_of_what_it_measured(tmp_path, capsys):
    path = tmp_path / "new" / "x.json"

    def measure(settings):
        yield Table(["count"], [[str(settings.count)]])
        raise RuntimeError("no more")

    options = ["--smoke", "--json", str(path), "--data", "/home/me/birds.zip"]
    options += ["--no-is-new", "--sizes", "3", "4", "5", "6"]
    about = "Title.\n\n    python -m of.it\n\nMore."
    module = SimpleNamespace(
        __spec__=SimpleNamespace(name="training.research.benchmarks.x"),
        __doc__=about,
        Settings=Settings,
        measure=measure,
    )
    with pytest.raises(SystemExit, match="no more"):
        run_measurement(module, options)
    record = read_record(path)
    assert record["tables"][0]["rows"] == [["1"]]
    assert record["settings"]["count"] == 1
    assert record["about"] == "More."
    assert record["command"].endswith(
        "x --smoke --data birds.zip --no-is-new --sizes 3 4 5 6"
    )
    assert "| 1 |" in capsys.readouterr().out
    page = pages(path.parent)["x.md"]
    assert "# Title\n" in page and "| 1 |" in page and "home" not in page


def test_a_spread_divides_by_the_count_less_one():
    measure = mean_and_deviation([0.1, 0.3])
    assert measure["std"] == pytest.approx(0.2 / 2**0.5)
    assert spread(measure, factor=100, digits=1) == "20.0 ± 14.1"
    assert spread(mean_and_deviation([0.5])) == "0.5000"
    assert facts_table({"a_b": 1000, "c": {"d": 1}}).rows == [
        ["a b", "1,000"],
        ["c", "d 1"],
    ]
