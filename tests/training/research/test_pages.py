"""Pages are those of today's records, and every number is its record's."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from training.research import report
from training.research.pages import (
    DOCS,
    ROOT,
    add_record,
    check_pages,
    main,
    pages,
    read_records,
    write_pages,
)
from training.research.report import Table, over_runs, spread, write_record

GAIN = {"difference": 0.02, "low": 0.01, "high": 0.03, "num_seeds": 2}


def row(method, mean, **differences):
    score = {"mean": mean, "std": 0.01, "values": [mean - 0.01, mean + 0.01]}
    return {
        **{"row": "c2", "loss": "c2", "method": method, "models": 2},
        **{"steps": 20, "learning_rate": 0.001, "differences": differences},
        "scores": {"map_at_r": score, "precision_at_1": score},
        "activity": {"memory_fill": [0.5, 1.0]},
    }


def study(*rows):
    return {
        **{"kind": "study", "study": "emoji", "title": "A study", "about": ""},
        "command": "python -m training.research.study emoji",
        "environment": {"python": "3", "packages": {"keras": "1"}},
        "rows": rows or [row("gap", 0.25), row("gsp", 0.27, gap=GAIN)],
    }


TABLE = {"title": "heads", "headings": ["", "x"], "rows": [["a", 1.25]]}
BENCHMARK = study() | {"kind": "benchmark", "rows": [], "tables": [TABLE]}
MADE = "# Page\n\n{}\n\n<!-- made emoji -->\n<!-- end -->\n"


def test_every_printed_number_is_its_records():
    others = ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md")
    assert check_pages(DOCS, others) == []
    for name, record in read_records(DOCS).items():
        assert record["command"].startswith("python -m training."), name


def test_every_record_and_picture_is_shown_and_every_link_leads_somewhere():
    made = "".join(pages().values())
    assert {*pages()} == {path.name for path in DOCS.glob("*.md")}
    for picture in DOCS.glob("*.png"):
        assert f"({picture.name})" in made, picture
    for target in {part.split(")")[0] for part in made.split("](")[1:]}:
        assert (DOCS / target).exists(), target
    assert len((DOCS / "index.md").read_text().splitlines()) < 50


@pytest.mark.parametrize(
    ("prose", "sentence"),
    [
        ("+2.0<!--= emoji c2 gsp-->", ""),
        ("+2.0 [+1.0, +3.0]<!--= emoji c2 gsp-->", ""),
        ("27 %<!--= emoji c2 gsp map_at_r-->", ""),
        ("`0.3` and 1.2<!--= other; a; x--> and 95 %", ""),
        ("1.25<!--= other; heads; a; x-->", ""),
        ("+2.1<!--= emoji c2 gsp-->", "Received: ['+2.1']"),
        ("+2.0 [+1.1, +3.0]<!--= emoji c2 gsp-->", "Received: ['+2.0'"),
        ("2.0<!--= emoji c2 ccp-->", "no record has 'emoji c2 ccp'"),
        ("2.0<!--= gone c2 gsp-->", "no record has"),
        ("1.2<!--= other; b; x-->", "no record has"),
        ("a gain of 2.0", "2.0 names no record"),
        ("<!-- made gone -->\n<!-- end -->", "no record has the name gone"),
    ],
)
def test_a_number_in_prose_is_compared_with_its_record(
    prose, sentence, tmp_path
):
    write_record(tmp_path / "emoji.json", study())
    write_record(tmp_path / "other.json", BENCHMARK)
    (tmp_path / "page.md").write_text(MADE.format(prose))
    write_pages(tmp_path)
    found = check_pages(tmp_path)
    assert len(found) == bool(sentence)
    assert all(sentence in one for one in found)


def test_an_interval_in_a_guide_names_its_record(tmp_path):
    write_record(tmp_path / "docs" / "emoji.json", study())
    write_pages(tmp_path / "docs")
    guide = tmp_path / "guide.md"
    guide.write_text(
        "    python -m x\n\n`+1.0 [+0.0, +2.0]`, 2.5 points, "
        "+2.0 [+1.0, +3.0]<!--= emoji c2 gsp-->"
    )
    assert check_pages(tmp_path / "docs", (guide,)) == []
    guide.write_text("    python -m x\n\n+2.0 [+1.0, +3.0] points")
    (sentence,) = check_pages(tmp_path / "docs", (guide,))
    assert sentence == "guide.md: +2.0 [+1.0, +3.0] names no record."


def test_a_block_or_a_difference_that_was_changed_is_found(tmp_path):
    wrong = study(row("gap", 0.25), row("gsp", 0.29, gap=GAIN))
    write_record(tmp_path / "emoji.json", wrong)
    write_pages(tmp_path)
    (sentence,) = check_pages(tmp_path)
    assert "c2 gsp over gap is 0.040000. Received: 0.02" in sentence
    write_record(tmp_path / "emoji.json", study())
    write_pages(tmp_path)
    page = tmp_path / "emoji.md"
    page.write_text(page.read_text().replace("25.00 ± 1.00", "25.01 ± 1.00"))
    (sentence,) = check_pages(tmp_path)
    assert "a block is not made of today's records" in sentence
    with pytest.raises(SystemExit, match="a block is not made"):
        main(["--check", "--docs", str(tmp_path)])


def test_a_record_fills_its_block_or_gets_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(MADE.format("Prose."))
    source, docs = tmp_path / "new" / "emoji.json", tmp_path
    write_record(source, study())
    source.with_suffix(".png").write_bytes(b"drawn")
    add_record(source, docs)
    write_record(docs / "other.json", BENCHMARK)
    write_pages(docs)
    text = page.read_text()
    assert text.startswith("# Page\n\nProse.")
    assert "25.00 ± 1.00" in text and "memory 50%-100%; 2 models" in text
    assert "gap +2.00 [+1.00, +3.00]" in text and "(emoji.png)" in text
    assert "| a | 1.25 |" in (docs / "other.md").read_text()
    assert write_pages(docs) == []


def test_the_latest_text_of_a_command_is_on_a_page_once(tmp_path):
    command = {"command": "python -m training.research.benchmarks.pooling"}
    for day, name in enumerate(("old", "new")):
        facts = {"about": f"A text, {name}.", "date": f"2026-01-0{day + 1}"}
        write_record(tmp_path / f"{name}.json", BENCHMARK | command | facts)
    blocks = (f"<!-- made {name} -->\n<!-- end -->" for name in ("old", "new"))
    (tmp_path / "page.md").write_text("\n".join(blocks))
    text = pages(tmp_path)["page.md"]
    assert text.count("A text, new.") == 1 and "A text, old." not in text
    assert text.count(command["command"]) == 2


def test_what_is_no_record_is_refused(tmp_path):
    for content in ("[]", "{", '{"kin": 1}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(SystemExit, match="A record must be"):
            main([str(tmp_path / "x.json"), "--docs", str(tmp_path / "docs")])


@dataclass(frozen=True, kw_only=True)
class Settings(report.CommandSettings):
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
    spec = SimpleNamespace(name="training.research.benchmarks.x")
    module = SimpleNamespace(__spec__=spec, __doc__=about)
    module.Settings, module.measure = Settings, measure
    with pytest.raises(SystemExit, match="no more"):
        report.run_measurement(module, options)
    record = report.read_record(path)
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
    measure = over_runs([{"x": 0.1}, {"x": 0.3}])["x"]
    assert measure["std"] == pytest.approx(0.2 / 2**0.5)
    assert spread(measure, factor=100, digits=1) == "20.0 ± 14.1"
    assert spread(over_runs([{"x": 0.5}])["x"]) == "0.5000"
