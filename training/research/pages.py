"""Writes the tables of results: `python -m training.research.pages`.

With folders of studies or JSON files of experiments and benchmarks, adds their
records to `docs/results` first. A page there is prose, written by hand, and
blocks `<!-- made NAME -->`, in which this command writes the tables of a record;
`summary` is the table of `summary.toml`, a line for each method. `--check` compares
every block with its record, writes nothing, and fails on a difference.
"""

import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from training.research.report import (
    Table,
    gain_text,
    read_record,
    write_record,
)
from training.research.studies import STUDIES, UNTRAINED
from training.research.study_record import study_record, study_table
from training.runs.command_line import run_command
from training.runs.run_directory import write_text

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "results"
SUMMARY = Path(__file__).with_name("summary.toml")
BLOCK = re.compile(r"<!-- made (\S+) -->\n.*?<!-- end -->", re.DOTALL)


@dataclass(frozen=True)
class PagesCommand:
    """Writes the tables of every page of results."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Records to add: folders of studies, JSON files."""
    show: bool = False
    """Print the tables of the studies, and write nothing."""
    check: bool = False
    """Compare every block with its record, and write nothing."""
    docs: Path = DOCS
    """Folder of records and pages."""


def add_record(source: Path, docs: Path) -> Path:
    """Copies a study's or another command's numbers to the pages' folder.

    A picture that the command drew is copied too.
    """
    source = source.resolve()
    if source.is_dir():
        record, name = study_record(source), source.name
    elif source.is_file():
        record, name = read_record(source), source.stem
    else:
        raise FileNotFoundError(
            "`sources` must be folders of studies or JSON files. Received: "
            f"{source}."
        )
    path = docs / f"{name}.json"
    section(name, record, docs, set())  # One that has no page is not copied.
    write_record(path, record)
    drawn = source.with_suffix(".png")
    if drawn.is_file() and drawn != path.with_suffix(".png"):
        shutil.copy(drawn, docs)
    return path


def pages(folder: Path = DOCS) -> dict[str, str]:
    """File name -> text of every page, with the blocks of today's records.

    Guides beside the folder may have blocks, too. A record that no page shows
    gets a page of its own.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"`docs` must be a folder of records and pages. Received: {folder}."
        )
    records = read_records(folder)
    texts = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*.md")}
    for path in (folder.parent / "guides").glob("*.md"):
        if BLOCK.search(text := path.read_text(encoding="utf-8")):
            texts[f"../guides/{path.name}"] = text
    shown = {name for text in texts.values() for name in BLOCK.findall(text)}
    for name, text in texts.items():
        if text.count("<!-- made ") != len(BLOCK.findall(text)):
            raise ValueError(
                f"Every `<!-- made NAME -->` must be a line that a line "
                f"`<!-- end -->` follows. Received: {name}."
            )
    for name in records.keys() - shown:
        if f"{name}.md" in texts:
            raise ValueError(
                f"A page must have a block `<!-- made {name} -->` for its "
                f"record. Received: {name}.md, which has none."
            )
        title = records[name]["title"]
        block = f"<!-- made {name} -->\n<!-- end -->"
        texts[f"{name}.md"] = f"# {title}\n\n{block}\n"

    def made(page):
        read: set[str] = set()

        def block(match):
            if match[1] == "summary":
                text = summary_table(records).markdown()
            elif match[1] not in records:
                return match[0]
            else:
                text = section(match[1], records[match[1]], folder, read)
            return f"<!-- made {match[1]} -->\n\n{text}\n\n<!-- end -->"

        return BLOCK.sub(block, page)

    return {name: made(text) for name, text in texts.items()}


def write_pages(folder: Path = DOCS) -> list[Path]:
    """Writes the blocks of all pages; returns the changed files."""
    made = pages(folder)
    changed = [name for name in made if _is_old(folder / name, made[name])]
    for name in changed:
        write_text(folder / name, made[name])
    return [folder / name for name in changed]


def _is_old(path, text):
    return not path.exists() or path.read_text("utf-8") != text


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """Name -> record of every JSON file of a folder."""
    return {p.stem: read_record(p) for p in sorted(folder.glob("*.json"))}


def section(
    name: str, record: Mapping[str, Any], folder: Path, read: set[str]
) -> str:
    """A record as Markdown: command, text, tables, picture, circumstances.

    Paragraphs that the page has already, `read`, are left out.
    """
    tables = [Table(**one) for one in record.get("tables", ())]
    about = record["about"]
    if record["kind"] == "study":
        tables = [study_table(record), *tables]
        about = f"{about} {_about_study(record)}".strip()
    paragraphs = about.split("\n\n")
    about = "\n\n".join(p for p in paragraphs if p not in read)
    read.update(paragraphs)
    parts = [f"    {record['command']}", about]
    for table in _beside_each_other(tables):
        parts += [f"### {table.title}" if table.title else "", table.markdown()]
    if (folder / f"{name}.png").exists():
        parts.append(f"![{record['title']}]({name}.png)")
    parts.append(_circumstances(record))
    return "\n\n".join(filter(None, parts))


def _beside_each_other(tables):
    """Many tables of times as one of their ratios, a column for each."""
    columns = {tuple(one.headings[:3]) for one in tables}
    if any("recall" in one.headings for one in tables):
        return tables  # A time says little without it.
    if len(tables) < 3 or len(columns) > 1 or "ratio" not in columns.pop():
        return tables
    words = [one.title.split(", ") for one in tables]
    shared = set.intersection(*map(set, words))
    titles = [", ".join(w for w in one if w not in shared) for one in words]
    ratios = [{row[0]: row[2] for row in one.rows} for one in tables]
    names = dict.fromkeys(name for one in ratios for name in one)
    rows = [[name, *(one.get(name, "") for one in ratios)] for name in names]
    return [Table([tables[0].headings[0], *titles], rows, 1, "Ratios")]


def _about_study(record):
    steps = sorted({row["steps"] for row in record["rows"]} - {0})
    words = " or ".join(f"{count:,}" for count in steps)
    over = record.get("over", "classes")
    seeds = record.get("search_seeds", 1)
    search = "one seed" if seeds == 1 else f"{seeds} seeds"
    rate = f"at the rate that {search} found best on validation {over}"
    tried = {rate for row in record["rows"] for rate in row.get("rates") or ()}
    if all(len(row.get("rates") or ()) < 2 for row in record["rows"]):
        rate = "at the rate of its row"
        if len(tried) == 1:
            rate = f"all rows at the rate {tried.pop()}"
    elif any(len(row.get("near_rates") or ()) > 1 for row in record["rows"]):
        rate = (
            "the mean over the rates within 0.3 points of the best validation"
        )
    models, means = "models", ""
    for row in record["rows"]:
        if row["models"] > len(row["scores"]["map_at_r"]["values"]):
            models, means = "folds", ", each the mean of its seeds"
    return (
        f"{words} steps. Each model is scored once, with the weights that validate "
        f"best, {rate}. Percentages, mean ± standard deviation over {models}{means}. "
        f"Differences are paired, query by query; 95 % intervals are over {models} "
        f"and {over} together, from three {models} on."
        f"{_left_out(record)}"
    )


def _left_out(record):
    """The cells that a study has, and its record has not."""
    study = STUDIES.get(record["study"])
    if study is None:
        return ""
    shown = {(row["row"], row["method"]) for row in record["rows"]}
    methods: dict[str, list[str]] = {}
    for row, method in dict.fromkeys(map(study.family, study.cells)):
        is_shown = (row, method) in shown | {UNTRAINED}
        if not is_shown:
            methods.setdefault(row, []).append(method)
    if not methods:
        return ""
    cells = "; ".join(f"{row}: {', '.join(m)}" for row, m in methods.items())
    return f"\n\nCells of the study that were not trained: {cells}."


def _circumstances(record):
    """Settings, device and versions of a record."""
    words = ", ".join(f"{k} {v}" for k, v in record.get("settings", {}).items())
    text = f"Settings: {words}." if words else ""
    if "device" in record:
        text += f" Measured on {record['device']}"
        if record.get("load") is not None:
            text += f", load {record['load']:.1f}"
        text += "."
    facts = record["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in facts["packages"].items())
    commits = record.get("commits") or [facts.get("commit") or "unknown"]
    words = ", ".join(f"{x[:12]}{'-dirty' * ('dirty' in x)}" for x in commits)
    machine = facts.get("processor")
    machine = f"{machine}, {facts['blas']}; " if machine else ""
    versions = f"{machine}Python {facts['python']}, {packages}; commit {words}."
    return f"{text.strip()}\n\n{versions}".strip()


def summary_table(
    records: Mapping[str, Mapping[str, Any]], file: Path = SUMMARY
) -> Table:
    """A line for each method: where, its gain in points, costs, settings.

    A gain is `STUDY ROW METHOD OVER`, or `RECORD; first cell of a row; heading`,
    perhaps with a table's title before the row. One whose record is missing is
    left out; `ValueError` for a row that its record lacks.
    """
    rows = []
    for line in tomllib.loads(file.read_text("utf-8"))["method"]:
        gains = [
            f"{where} {gain}"
            for where, source in line["gains"].items()
            if (gain := gain_of(records, source))
        ]
        name = f"[{line['name']}]({line['page']})"
        text = "; ".join(gains) or "not measured by this version"
        rows.append([name, text, line["costs"], line["set"]])
    headings = ["method", "gain in points of MAP@R", "costs", "set"]
    return Table(headings, rows, 4)


def gain_of(records: Mapping[str, Mapping[str, Any]], source: str) -> str:
    """The gain that a line of the summary names, `+1.2 [+0.3, +2.1]`."""
    name, *title, first, heading = (
        word.strip() for word in source.split(";" if ";" in source else None)
    )
    if name not in records:
        return ""
    if ";" in source:
        for table in records[name].get("tables", ()):
            is_it = all(table["title"].startswith(word) for word in title)
            cells = [row for row in table["rows"] if str(row[0]) == first]
            if is_it and cells and heading in table["headings"]:
                return cells[0][[*table["headings"]].index(heading)]
    for cell in records[name].get("rows", ()):
        is_it = [cell["row"], cell["method"]] == [*title, first]
        if is_it and heading in cell["differences"]:
            return gain_text(cell["differences"][heading])
    raise ValueError(
        f"{SUMMARY.name}: {name}.json must have every gain. Received: {source}."
    )


def check_pages(folder: Path = DOCS) -> list[str]:
    """Returns a sentence for every block that is not its record's."""
    wrong, known = [], {*read_records(folder), "summary"}
    made = pages(folder)
    for name, text in made.items():
        for block in {*BLOCK.findall(text)} - known:
            wrong.append(f"{name}: no record has the name {block}.")
        if _is_old(folder / name, text):
            wrong.append(f"{name}: a block is not made of today's records.")
    return wrong


def run_pages(command: PagesCommand) -> None:
    """Adds records and writes the pages, prints tables, or checks blocks."""
    if command.show:
        for source in command.sources:
            print(study_table(study_record(source)).markdown())
        return
    if command.check:
        if wrong := check_pages(command.docs):
            raise ValueError("\n".join(wrong))
        print("every table is its record's")
        return
    command.docs.mkdir(parents=True, exist_ok=True)
    for source in command.sources:
        print(add_record(source, command.docs))
    for path in write_pages(command.docs):
        print(path)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("research.pages", __doc__, PagesCommand, run_pages, arguments)


if __name__ == "__main__":
    main()
