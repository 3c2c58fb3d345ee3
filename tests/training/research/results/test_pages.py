"""Pages say what their records say, and nothing else."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from training.recipes.data import check_sources
from training.research.results.__main__ import main
from training.research.results.experiment_pictures import pictures_of
from training.research.results.pages import (
    DOCS,
    README,
    pages,
    study_command,
    write_pages,
)
from training.research.results.records import (
    Table,
    benchmark_record,
    command_line,
    for_a_page,
    keep_table,
    record_text,
    write_record,
)
from training.research.results.summary import BEGIN, END
from training.research.studies import STUDIES

SCORE = {"mean": 0.25, "std": 0.01, "values": [0.24, 0.26]}
ROW = {
    "row": "c2",
    "loss": "c2",
    "method": "gap",
    "protocol": "single",
    "models": 2,
    "is_finished": True,
    "steps": 20,
    "evaluations": 2,
    "seconds": 90.0,
    "parts": {
        "single": {
            "embedding_size": 8,
            "map_at_r": SCORE,
            "precision_at_r": SCORE,
            "precision_at_1": SCORE,
        }
    },
    "activity": {},
    "curve": {"steps": [10, 20], "val_map_at_r": [0.1, 0.2]},
    "differences": {},
    "selected_on": "validation classes",
}
STUDY = {
    "kind": "study",
    "study": "emoji",
    "title": "a study",
    "dataset": "folder",
    "environment": {"python": "3", "packages": {"keras": "3"}, "commit": None},
    "rows": [ROW],
}


def test_every_page_is_the_one_of_its_record():
    made = pages()
    kept = {
        path.name: path.read_text(encoding="utf-8")
        for path in DOCS.glob("*")
        if path.suffix in (".md", ".svg")
    }
    assert made == kept, "run `python -m training.research.results`"


def test_guides_say_what_the_pages_they_name_say():
    interval = re.compile(r"[+-]\d+\.\d+ \[[^\]]+\](?: of \d+\.\d+)?")
    found = 0
    guides = (DOCS.parent / "guides").glob("*.md")
    for guide in (*guides, README):
        prose, *_ = guide.read_text(encoding="utf-8").partition(BEGIN)
        *_, behind = guide.read_text(encoding="utf-8").partition(END)
        for line in f"{prose}{behind}".splitlines():
            said = [one.split(" of ") for one in interval.findall(line)]
            names = re.findall(r"\((?:\.\.|docs)/results/([\w-]+\.md)\)", line)
            text = "".join((DOCS / name).read_text("utf-8") for name in names)
            missing = [x for one in said for x in one if x not in text]
            assert not missing, f"{guide.name}: {missing} not on {names}"
            found += len(said)
    assert found


def test_a_study_has_its_numbers_and_its_curves(tmp_path):
    write_record(tmp_path / "a.json", STUDY)
    write_pages(tmp_path)
    page = (tmp_path / "a.md").read_text()
    assert "| c2 | gap | 25.00 ± 1.00 |" in page
    assert "![Validation MAP@R against training steps](a.svg)" in page
    assert (tmp_path / "a.svg").read_text().count("<polyline") == 1
    assert "[a study](a.md)" in (tmp_path / "index.md").read_text()
    assert not write_pages(tmp_path)


@pytest.mark.parametrize(
    ("protocol", "models"), [("single", "seeds"), ("fair", "folds and seeds")]
)
def test_a_page_says_what_its_intervals_are_over(tmp_path, protocol, models):
    gained = {"difference": 0.1, "low": 0.0, "high": 0.2, "num_seeds": 2}
    row = ROW | {"protocol": protocol, "differences": {"untrained": gained}}
    write_record(tmp_path / "a.json", STUDY | {"rows": [row]})
    write_pages(tmp_path)
    page = (tmp_path / "a.md").read_text()
    assert f"over the {models} that both have" in page
    assert f"95 % interval over classes and {models}" in page


@pytest.mark.parametrize("name", STUDIES)
def test_a_studys_command_names_what_has_to_be_named(name, tmp_path):
    words = study_command(name).split()
    assert words[:4] == ["python", "-m", "training.research.study", name]
    named = {
        "--data-dir": {"data_dir": str(tmp_path)},
        "--backbone-weights": {"backbone_weights": str(tmp_path)},
    }
    given = {k: v for w in words if w in named for k, v in named[w].items()}
    recipes = STUDIES[name].cells.values()
    for recipe in recipes:
        check_sources(replace(recipe, **given))
    # And nothing that is not needed.
    for left_out in given:
        fewer = {k: v for k, v in given.items() if k != left_out}
        with pytest.raises(ValueError, match=f"`{left_out}` must name"):
            for recipe in recipes:
                check_sources(replace(recipe, **fewer))


def test_a_page_says_whether_training_was_long_enough(tmp_path):
    steps = list(range(10, 110, 10))
    rising = [0.01 * i for i in range(10)]
    rows = [
        ROW
        | {
            "method": method,
            "steps": 100,
            "best_steps": best,
            "curve": {"steps": steps, "val_map_at_r": curve},
        }
        for method, curve, best in (
            ("gap", rising, [100, 90]),
            ("gsp", [0.1] * 10, [10, 10]),
        )
    ]
    write_record(tmp_path / "a.json", STUDY | {"rows": rows})
    page = pages(tmp_path)["a.md"]
    assert "changed by +0.0 to +2.0 points, +1.0 in the median" in page
    assert "1 of 4 models were best at their last evaluation" in page
    # The command has 1,500 steps, and the other cells.
    assert "Since this record the command trains for 1,500 steps." in page
    assert "Not trained here: ms with gap, single" in page
    assert "c2 with single, ccp, " in page


def test_a_page_of_the_study_as_it_is_says_nothing_of_others(tmp_path):
    cells = STUDIES["components"].cells
    rows = [
        ROW | {"row": row, "method": method, "steps": recipe.steps}
        for (row, method), recipe in cells.items()
    ]
    record = STUDY | {"study": "components", "rows": rows}
    write_record(tmp_path / "a.json", record | {"commits": ["a" * 40, "b" * 9]})
    page = pages(tmp_path)["a.md"]
    assert "Since this record" not in page and "Not trained here" not in page
    assert f"commits {'a' * 12}, {'b' * 9}." in page


def test_every_experiment_shows_its_pictures():
    for path in DOCS.glob("*.json"):
        if json.loads(path.read_text())["kind"] != "experiment":
            continue
        page = (DOCS / f"{path.stem}.md").read_text()
        shown = re.findall(r"\]\(([^)]*\.png)\)", page)
        assert f"{path.stem}.png" in shown
        for file in shown:
            assert (DOCS / file).read_bytes()[1:4] == b"PNG"


def test_an_experiments_picture_is_drawn_from_its_record_once(tmp_path):
    record = (DOCS / "transport_toy.json").read_text()
    for name in ("toy", "toy_larger"):
        (tmp_path / f"{name}.json").write_text(record)
    changed = write_pages(tmp_path)
    assert {tmp_path / "toy.png", tmp_path / "toy_larger.png"} < {*changed}
    page = (tmp_path / "toy.md").read_text()
    assert "](toy.png)" in page and "toy_larger" not in page
    before = (tmp_path / "toy.png").stat().st_mtime_ns
    assert not write_pages(tmp_path)
    assert (tmp_path / "toy.png").stat().st_mtime_ns == before
    # A record that is taken in brings a new one.
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "toy.json").write_text(record)
    main([str(tmp_path / "from" / "toy.json"), "--docs", str(tmp_path)])
    assert (tmp_path / "toy.png").stat().st_mtime_ns > before


def test_parts_of_a_picture_belong_to_their_record_alone(tmp_path):
    for name in ("a.png", "a_maps.png", "a_b.json", "a_b.png", "a_b_maps.png"):
        (tmp_path / name).touch()
    names = [one.name for one in pictures_of("a", tmp_path)]
    assert names == ["a.png", "a_maps.png"]
    names = [one.name for one in pictures_of("a_b", tmp_path)]
    assert names == ["a_b.png", "a_b_maps.png"]


def test_a_kept_table_has_a_page(tmp_path):
    keep_table(
        tmp_path / "b.json",
        "a benchmark",
        ["what", "ratio"],
        [["ours", "1.00"]],
        command="python -m x",
    )
    page = pages(tmp_path)["b.md"]
    assert "| ours | 1.00 |" in page and "    python -m x" in page


def test_tables_have_headings_of_their_own(tmp_path):
    tables = [
        Table(["", "ratio"], [["ours", "1.00"]], title="small"),
        Table(["", "ratio"], [["ours", "2.00"]], title="large"),
    ]
    record = benchmark_record("b", tables, command="python -m x", load=0.25)
    write_record(tmp_path / "b.json", record)
    page = pages(tmp_path)["b.md"]
    assert page.index("## small") < page.index("## large")
    assert "| ours | 2.00 |" in page
    assert f"{record['device']}, load 0.2 at its beginning" in page


def test_small_numbers_keep_their_digits():
    text = record_text({"times": [1.23456789e-5, 12.3456789]})
    assert json.loads(text) == {"times": [1.23457e-5, 12.345679]}


def test_a_smoke_run_says_so_and_folders_are_left_out():
    record = {"settings": {"smoke": True, "out": "a/b", "json": None}}
    assert for_a_page(record)["settings"] == {"smoke": True}
    record = {"settings": {"smoke": False, "data_dir": Path("a/b")}}
    assert for_a_page(record)["settings"] == {"data_dir": "b"}


def test_a_command_names_what_is_not_default():
    @dataclass
    class Settings:
        sizes: tuple[tuple[int, int], ...] = ((1, 2),)
        names: tuple[str, ...] = ()
        use_it: bool = True
        repeats: int = 3
        json: Path | None = None

    assert command_line("x", Settings()) == "python -m x"
    assert command_line("x", Settings(names=("d/e.zip",))) == (
        "python -m x --names e.zip"
    )
    settings = Settings(((1, 2), (3, 4)), ("a b",), False, json=Path("c"))
    assert command_line("x", settings) == (
        "python -m x --sizes 1 2 3 4 --names 'a b' --no-use-it"
    )


def test_records_are_taken_in(tmp_path, capsys):
    source = tmp_path / "runs" / "a.json"
    settings = {"data_dir": "/somewhere/birds.zip", "out": "x", "steps": 3}
    write_record(source, STUDY | {"settings": settings})
    main([str(source), "--docs", str(tmp_path / "docs")])
    kept = json.loads((tmp_path / "docs" / "a.json").read_text())
    assert kept.pop("settings") == {"data_dir": "birds.zip", "steps": 3}
    assert kept == STUDY
    assert "index.md" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text, message", [(None, "must be folders"), ("[1]", "has no `kind`")]
)
def test_other_files_are_refused(tmp_path, text, message):
    source = tmp_path / "x.json"
    if text is not None:
        source.write_text(text)
    with pytest.raises(SystemExit, match=message):
        main([str(source), "--docs", str(tmp_path / "docs")])
