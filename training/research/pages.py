"""Writes the tables of results: `python -m training.research.pages`.

With folders of studies or JSON files of experiments and benchmarks, adds their
records to `docs/results` first. A page there is prose, written by hand, and
blocks `<!-- made NAME -->`, in which this command writes the tables of a record.
A number in prose names its source in a comment behind it: for a study
`+20.8<!--= STUDY ROW METHOD-->` is the gain over averaging, a fourth word the
method that it is over, or a measure (`map_at_r`); for other records
`1.2<!--= RECORD; first cell of a row; heading-->`, perhaps with a table's title
before the row. `--check` compares every number with its record, writes nothing,
and fails on a difference.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from training.research.report import Table, read_record, write_record
from training.research.studies import UNTRAINED, beside
from training.research.study_record import study_record, study_table
from training.runs.command_line import run_command
from training.runs.run_directory import write_text
from training.runs.trial import MEASURES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "results"
BLOCK = re.compile(r"<!-- made (\S+) -->\n.*?<!-- end -->", re.DOTALL)
_NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?"
CITED = re.compile(
    rf"(?<![\d.])({_NUMBER})(?: \[({_NUMBER}), ({_NUMBER})\])?(?: ?%)?"
    r"<!--= ([^>]+?) ?-->"
)
_INTERVAL = re.compile(rf"{_NUMBER} \[{_NUMBER}, {_NUMBER}\]")
# What no number of prose is in: blocks, code, links, comments.
_CODE = re.compile(
    r"```.*?```|`[^`]+`|\]\([^)]*\)|<!--.*?-->|^    [^\n]*$", re.DOTALL | re.M
)


@dataclass(frozen=True)
class PagesCommand:
    """Writes the tables of every page of results."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Records to add: folders of studies, JSON files."""
    show: bool = False
    """Print the tables of the studies, and write nothing."""
    check: bool = False
    """Compare every number with its record, and write nothing."""
    docs: Path = DOCS
    """Folder of records and pages."""


def add_record(source: Path, docs: Path) -> Path:
    """Copies a study's or another command's numbers to the pages' folder.

    A picture that the command drew is copied too.
    """
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
    write_record(path, record)
    drawn = source.with_suffix(".png")
    if drawn.is_file() and drawn != path.with_suffix(".png"):
        shutil.copy(drawn, docs)
    return path


def pages(folder: Path = DOCS) -> dict[str, str]:
    """File name -> text of every page, with the blocks of today's records.

    A record that no page shows gets a page of its own.
    """
    records = read_records(folder)
    found = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*.md")}
    shown = {name for text in found.values() for name in BLOCK.findall(text)}
    for name in records.keys() - shown:
        title = records[name]["title"]
        block = f"<!-- made {name} -->\n<!-- end -->"
        found[f"{name}.md"] = f"# {title}\n\n{block}\n"

    def made(page):
        read: set[str] = set()
        own = [records[k] for k in BLOCK.findall(page) if k in records]
        own.sort(key=lambda record: record.get("date", ""))
        # The latest text of each command is that of all its records.
        latest = {_module(record): record["about"] for record in own}

        def block(match):
            if match[1] not in records:
                return match[0]
            record = dict(records[match[1]])
            if record["kind"] != "study":
                record["about"] = latest[_module(record)]
            text = section(match[1], record, folder, read)
            return f"<!-- made {match[1]} -->\n\n{text}\n\n<!-- end -->"

        return BLOCK.sub(block, page)

    return {name: made(text) for name, text in found.items()}


def write_pages(folder: Path = DOCS) -> list[Path]:
    """Writes the blocks of all pages; returns the changed files."""
    made = pages(folder)
    changed = [folder / name for name in made if _is_old(folder / name, made)]
    for path in changed:
        write_text(path, made[path.name])
    return changed


def _is_old(path, made):
    return not path.exists() or path.read_text("utf-8") != made[path.name]


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
    command = record.get("command")
    if command and not _exists(command):
        command, about = None, f"{about}\n\nBy a command of an earlier version."
    parts = [f"    {command}" if command else "", about]
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
    words = " or ".join(f"{one:,}" for one in steps)
    over = record.get("over", "classes")
    rate = (
        f"at the rate that is best on validation {over}, of one seed's search "
        "(the chance in that choice is not in the intervals)"
    )
    tried = {one for row in record["rows"] for one in row.get("rates") or ()}
    if len(tried) == 1:
        rate = f"all rows at the rate {tried.pop()}"
    elif any(row.get("near_rates") for row in record["rows"]):
        rate = (
            "the mean over all rates within 0.3 points of the best validation "
            "score, which takes the chance in the choice of a rate out of the "
            "scores and makes intervals a little narrower"
        )
    seen = "" if over == "classes" else " of the same classes"
    return (
        f"{words} steps.\n\nThe weights with the best validation MAP@R are "
        f"scored once, {rate}. Percentages, mean ± standard deviation over models; "
        "differences are paired, query by query, with 95 % intervals over other "
        f"{over}{seen} and other models where a row has several. Without an "
        "interval: a difference of means."
    )


def _circumstances(record):
    """Settings, device and versions of a record."""
    words = ", ".join(f"{k} {v}" for k, v in record.get("settings", {}).items())
    text = f"Settings: {words}." if words else ""
    if "device" in record:
        text += f" Measured on {record['device']}"
        if record.get("load") is not None:
            text += f", load {record['load']:.1f}"
        text += "."
    found = record["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in found["packages"].items())
    commits = record.get("commits") or [found.get("commit") or "unknown"]
    words = ", ".join(f"{x[:12]}{'-dirty' * ('dirty' in x)}" for x in commits)
    versions = f"Python {found['python']}, {packages}; commit {words}."
    return f"{text.strip()}\n\n{versions}".strip()


def check_pages(folder: Path = DOCS, others: tuple[Path, ...] = ()) -> list:
    """Returns a sentence for every number that is not its record's.

    `others` are pages outside the folder: their cited numbers are checked, and
    that every number with an interval is cited.
    """
    records = read_records(folder)
    found = [*_wrong_differences(records)]
    made = pages(folder)
    for name, text in made.items():
        for block in {*BLOCK.findall(text)} - records.keys():
            found.append(f"{name}: no record has the name {block}.")
        if _is_old(folder / name, made):
            found.append(f"{name}: a block is not made of today's records.")
        found += _wrong_numbers(name, BLOCK.sub("", text), records)
        rest = _CODE.sub("", CITED.sub("", BLOCK.sub("", text)))
        for number in re.findall(r"[+-]?\d+\.\d+", rest):
            found.append(f"{name}: {number} names no record.")
    for path in others:
        text = path.read_text(encoding="utf-8")
        found += _wrong_numbers(path.name, text, records)
        rest = _CODE.sub("", CITED.sub("", text))
        for interval in _INTERVAL.findall(rest):
            found.append(f"{path.name}: {interval} names no record.")
    return found


def _wrong_numbers(name, text, records) -> Iterator[str]:
    for match in CITED.finditer(text):
        *numbers, source = match.groups()
        printed = [one for one in numbers if one is not None]
        try:
            known = cited_values(records, source)[: len(printed)]
        except (KeyError, StopIteration, IndexError):
            yield f"{name}: no record has {source!r}."
            continue
        # Rounded as they are printed.
        is_it = [
            abs(float(one.replace(",", "")) - value)
            <= 0.50001 * 10 ** -len(one.partition(".")[2])
            for one, value in zip(printed, known, strict=False)
        ]
        if len(known) != len(printed) or not all(is_it):
            yield f"{name}: {source!r} is {known}. Received: {printed}."


def cited_values(
    records: Mapping[str, Mapping[str, Any]], source: str
) -> list[float]:
    """The number that a comment names, and the ends of its interval.

    Raises `KeyError` or `StopIteration` where no record has it.
    """
    if ";" in source:
        name, *title, first, heading = (w.strip() for w in source.split(";"))
        for table in records[name]["tables"]:
            is_it = all(table["title"].startswith(one) for one in title)
            rows = [row for row in table["rows"] if str(row[0]) == first]
            if is_it and rows and heading in table["headings"]:
                cell = str(rows[0][[*table["headings"]].index(heading)])
                numbers = re.findall(_NUMBER, cell)
                return [float(one.replace(",", "")) for one in numbers]
        raise KeyError(source)
    name, row, method, *rest = source.split()
    found = next(
        one
        for one in records[name]["rows"]
        if (one["row"], one["method"]) == (row, method)
    )
    word = (rest or [*beside(method, name)[:1], "untrained"])[0]
    if word in MEASURES:
        return [100 * found["scores"][word]["mean"]]
    if word == "validation":
        return [100 * max(found["rates"].values())]
    gain = found["differences"][word]
    ends = (gain["difference"], gain.get("low"), gain.get("high"))
    return [100 * one for one in ends if one is not None]


def _wrong_differences(records) -> Iterator[str]:
    """A difference over all models of two rows is that of their scores."""
    for name, record in records.items():
        rows = record.get("rows", ()) if record["kind"] == "study" else ()
        known = {(one["row"], one["method"]): one for one in rows}
        for row in rows:
            for other, gain in row["differences"].items():
                names = (row["row"], other), (row["loss"], other), UNTRAINED
                theirs = next(known[one] for one in names if one in known)
                counts = {row["models"], theirs["models"]}
                is_all = counts == {gain["num_seeds"]} or other == "untrained"
                ours, base = (
                    one["scores"]["map_at_r"]["mean"] for one in (row, theirs)
                )
                # Records round to six digits.
                if is_all and abs(ours - base - gain["difference"]) > 2e-6:
                    yield (
                        f"{name}: {row['row']} {row['method']} over {other} is "
                        f"{ours - base:.6f}. Received: {gain['difference']}."
                    )


def _module(record):
    """The module that wrote a record."""
    found = re.search(r"-m (\S+)", record.get("command") or "")
    return found and found[1]


def _exists(command):
    """Whether the module of `python -m MODULE ...` is still there."""
    module = _module({"command": command})
    path = ROOT.joinpath(*module.split(".")) if module else ROOT
    return path.is_dir() or path.with_suffix(".py").exists()


def run_pages(command: PagesCommand) -> None:
    """Adds records and writes the pages, prints tables, or checks numbers."""
    if command.show:
        for source in command.sources:
            print(study_table(study_record(source)).markdown())
        return
    if command.check:
        others = [ROOT / "README.md", *(ROOT / "docs/guides").glob("*.md")]
        if wrong := check_pages(command.docs, tuple(others)):
            raise ValueError("\n".join(wrong))
        print("every number is its record's")
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
