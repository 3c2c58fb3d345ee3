"""Pages are those of today's records, and every number is its record's."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from training.research import report
from training.research.pages import (
    DOCS,
    add_record,
    check_pages,
    main,
    pages,
    read_records,
    summary_table,
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


def test_every_printed_table_is_its_records():
    assert check_pages(DOCS) == []
    for name, record in read_records(DOCS).items():
        assert record["command"].startswith("python -m training."), name


def test_every_record_and_picture_is_shown_and_every_link_leads_somewhere():
    texts = pages()
    made = "".join(texts.values())
    on_pages = {name for name in texts if not name.startswith("../guides/")}
    assert on_pages == {path.name for path in DOCS.glob("*.md")}
    for picture in DOCS.glob("*.png"):
        assert f"({picture.name})" in made, picture
    for name, text in texts.items():
        for target in {part.split(")")[0] for part in text.split("](")[1:]}:
            path = DOCS.joinpath(name).parent / target.split("#")[0]
            assert path.exists(), target
    assert len((DOCS / "index.md").read_text().splitlines()) < 50


@pytest.mark.parametrize(
    ("prose", "sentence"),
    [
        ("about two points", ""),
        ("<!-- made gone -->\n<!-- end -->", "no record has the name gone"),
    ],
)
def test_prose_has_words_and_blocks_have_records(prose, sentence, tmp_path):
    write_record(tmp_path / "emoji.json", study())
    (tmp_path / "page.md").write_text(MADE.format(prose))
    write_pages(tmp_path)
    wrong = check_pages(tmp_path)
    assert len(wrong) == bool(sentence)
    assert all(sentence in one for one in wrong)


def test_a_page_names_the_cells_that_its_record_lacks(tmp_path):
    write_record(tmp_path / "emoji.json", study())
    write_pages(tmp_path)
    text = (tmp_path / "emoji.md").read_text()
    assert "c2: xbm, single-fast, single-slow, ccp-slow; ms: gap" in text


def test_the_summary_has_a_line_a_method_and_gains_of_records(tmp_path):
    records = {"emoji": study(), "other": BENCHMARK}
    file = tmp_path / "summary.toml"
    file.write_text("""
[[method]]
name = "GSP"
page = "gsp.md"
costs = "little"
set = "nothing"
[method.gains]
"over averaging" = "emoji c2 gsp gap"
"in a table" = "other; heads; a; x"
"not measured" = "birds c2 ccp gap"
""")
    (line,) = summary_table(records, file).rows
    gains = "over averaging +2.0 [+1.0, +3.0]; in a table 1.25"
    assert [*line] == ["[GSP](gsp.md)", gains, "little", "nothing"]
    file.write_text(file.read_text().replace("birds c2 ccp", "emoji c2 cpp"))
    with pytest.raises(ValueError, match="Received: emoji c2 cpp gap"):
        summary_table(records, file)


def test_a_block_that_was_changed_is_found(tmp_path):
    write_record(tmp_path / "emoji.json", study())
    write_pages(tmp_path)
    page = tmp_path / "emoji.md"
    page.write_text(page.read_text().replace("25.00 ± 1.00", "25.01 ± 1.00"))
    (sentence,) = check_pages(tmp_path)
    assert "a block is not made of today's records" in sentence
    with pytest.raises(SystemExit, match="a block is not made"):
        main(["--check", "--docs", str(tmp_path)])


def test_a_guide_shows_a_record(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "guides").mkdir()
    write_record(tmp_path / "results" / "emoji.json", study())
    guide = tmp_path / "guides" / "large.md"
    guide.write_text(MADE.format("Prose."))
    write_pages(tmp_path / "results")
    assert "25.00 ± 1.00" in guide.read_text()
    assert not (tmp_path / "results" / "emoji.md").exists()


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


def test_what_is_no_record_is_refused(tmp_path):
    for content in ("[]", "{", '{"kind": "study"}'):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(SystemExit, match="A record must be"):
            main([str(tmp_path / "x.json"), "--docs", str(tmp_path / "docs")])
    with pytest.raises(SystemExit, match="`docs` must be a folder"):
        main(["--check", "--docs", str(tmp_path / "gone")])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Prose", "must have a block `<!-- made emoji -->`"),
        ("<!-- made emoji -->\n", "a line `<!-- end -->` follows"),
        (MADE.format("<!-- made x -->"), "a line `<!-- end -->` follows"),
    ],
)
def test_prose_is_never_overwritten(text, sentence, tmp_path):
    write_record(tmp_path / "emoji.json", study())
    (tmp_path / "emoji.md").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        write_pages(tmp_path)
    assert (tmp_path / "emoji.md").read_text() == text


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
