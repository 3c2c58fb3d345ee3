"""Makes the pages of results: `python -m training.research.pages`.

With folders of studies or JSON files of experiments, benchmarks and campaigns,
adds their records to `docs/results` first. A page answers one question from
one record or several. `index.md` is `summary.md`, its numbers filled in from
the records, and a table of methods.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from training.pictures.palette import picture
from training.research.report import (
    Table,
    read_record,
    write_record,
)
from training.research.study_record import interval, study_record, study_table
from training.runs.command_line import run_command
from training.runs.run_directory import write_text

DOCS = Path(__file__).parents[2] / "docs" / "results"
SUMMARY = Path(__file__).with_name("summary.md")
MADE = (
    "<!-- Made by `python -m training.research.pages` from the JSON files in "
    "this folder. -->"
)


@dataclass(frozen=True)
class Page:
    """One question and the records that answer it, in order.

    A record without a page of its own gets one under its name.
    """

    title: str
    records: tuple[str, ...]
    gains: bool = False
    """Whether to draw the first record's gains over average pooling."""
    costs: bool = False
    """Whether to draw them against the time of the poolings."""


PAGES = {
    "clutter": Page(
        "Objects among distractors: GSP, every pooling, fine-tuning",
        (
            *("clutter-pretrained", "emoji-kinds", "emoji-kinds-wide"),
            *("cifar-collage", "cifar_classifier", "collages"),
        ),
        gains=True,
        costs=True,
    ),
    "gsp_pays": Page(
        "When GSP pays, and its settings",
        ("gsp-pays", "gsp-settings"),
        gains=True,
    ),
    "birds": Page(
        "Photographs of birds, 25 classes to learn from",
        ("birds50-frozen",),
    ),
    "emoji": Page(
        "Many classes with few images: emoji",
        ("emoji-frozen", "emoji"),
    ),
    "glyphs": Page(
        "Letters among symbols, from random weights",
        ("glyphs",),
    ),
    "proxies": Page(
        "One set of sampled proxies, or several problems: CCP", ("ccp",)
    ),
    "advice": Page("Is the advice to train, or not, right?", ("advice",)),
    "zero_shot_prediction": Page(
        "Do regularized prototypes transfer to classes never seen?",
        ("zero_shot_prediction_seen", "zero_shot_prediction"),
    ),
    "dominant_prototypes": Page(
        "What do prototypes represent: classes, or parts that classes share?",
        ("dominant_prototypes", "dominant_prototypes_seen"),
    ),
    "pooling": Page("What a pooling costs", ("pooling", "pooling_jax")),
    "retrieval": Page(
        "Search and scoring",
        (
            *("retrieval", "codes", "encoder_files", "evaluation"),
            *("upgrade", "guarantee", "local_matching"),
        ),
    ),
    "training_speed": Page(
        "Speed of training", ("step_share", "pipeline", "batch_chunks")
    ),
    "robustness": Page(
        "Kills, damage, load, versions and planted errors",
        (
            *("kills", "kills_jax", "damage", "fuzz", "load"),
            *("versions", "planted_errors"),
        ),
    ),
}
# The table of methods on the index page: record, ending of its rows' names,
# page, and name of the data.
DATA = (
    ("clutter-pretrained", "", "clutter", "letters among symbols, frozen"),
    ("clutter-pretrained", "-tuned", "clutter", "the same, fine-tuned"),
    ("glyphs", "", "glyphs", "the same, from random weights"),
    ("emoji-kinds", "-frozen", "clutter", "kinds of emoji, frozen"),
    ("emoji-kinds", "", "clutter", "the same, fine-tuned"),
    ("cifar-collage", "-frozen", "clutter", "CIFAR-10 among birds, frozen"),
    ("cifar-collage", "", "clutter", "the same, fine-tuned"),
    ("collages", "", "clutter", "emoji among other emoji, frozen"),
    ("birds50-frozen", "", "birds", "birds, frozen"),
    ("ccp", "", "proxies", "birds, frozen, constant rate"),
    ("emoji-frozen", "", "emoji", "emoji, frozen"),
    ("emoji", "", "emoji", "emoji, fine-tuned"),
)
METHODS = {
    "gap": "averaging, over the untrained network",
    "gsp": "GSP",
    "gsp-affine": "GSP, affine costs",
    "gsp-zsr": "GSP + ZSR",
    "delf": "DELF",
    "solar": "SOLAR",
    "netvlad-large": "NetVLAD, 64 clusters",
    "xml": "XML",
    "xbm": "memory (XBM)",
    "single": "one set of sampled proxies",
    "ccp": "CCP",
    "ccp-rollback": "CCP, rolled back to the best weights",
    "ccp-unanchored": "CCP without anchor",
}
LOSSES = {
    "c1": "C1",
    "c2": "C2",
    "ms": "MS",
    "proxy-anchor": "ProxyAnchor",
    "proxy-nca": "ProxyNCA++",
}
METHOD_TABLE = (
    "What each method adds to the same loss with average pooling, in points of "
    "MAP@R on unseen classes: paired differences with their 95 % interval over "
    "classes and seeds (on birds, folds too), bold where the interval "
    "excludes zero. The first row of a data set is the gain of the loss over "
    "the untrained network. Each row has its own learning rate, chosen on "
    "validation classes. With so many intervals, one in twenty excludes zero "
    "by chance."
)


@dataclass(frozen=True)
class PagesCommand:
    """Writes every page of results."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Records to add: folders of studies, JSON files."""
    show: bool = False
    """Print the tables of the studies, and write nothing."""
    docs: Path = DOCS
    """Folder of records and pages."""


def add_record(source: Path, docs: Path) -> Path:
    """Copies a study's or another command's numbers to the pages' folder.

    A picture that the command drew is copied too; others are drawn again.
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
    for file in (f"{name}.png", f"{name}_hulls.png"):
        drawn = source.with_name(file)
        if not drawn.exists():
            (docs / file).unlink(missing_ok=True)
        elif drawn != docs / file:
            shutil.copy(drawn, docs)
    return path


def write_pages(folder: Path = DOCS) -> list[Path]:
    """Writes all pages and missing pictures; returns the files that changed.

    A picture's bytes depend on the version of matplotlib, so that a picture
    that exists stays.
    """
    changed = draw_missing(folder)
    for name, text in pages(folder).items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            changed.append(path)
    return changed


def pages(folder: Path = DOCS) -> dict[str, str]:
    """File name -> text of every page that the records of a folder make."""
    records = _records(folder)
    made, titles = {}, {}
    for name, page in _pages_of(records).items():
        parts, known = [MADE, f"# {page.title}"], set()
        for one in page.records:
            record = records[one]
            settings = record.get("settings", {})
            if record["title"] in known and "data_dir" in settings:
                # The same measurement on other data.
                data = settings["data_dir"] or "glyphs"
                record = {**record, "title": f"The same on {data}", "about": ""}
            known.add(record["title"])
            if len(page.records) > 1 and record["title"] != page.title:
                parts.append(f"## {record['title']}")
            parts += _section(one, record, folder)
        if page.costs and (folder / f"{name}.png").exists():
            parts.append(f"![Gain against cost]({name}.png)")
        made[f"{name}.md"] = "\n\n".join(filter(None, parts)) + "\n"
        titles[name] = page.title
    made["index.md"] = _index(titles, records)
    return made


def draw_missing(folder: Path) -> list[Path]:
    """Draws the pictures of a folder's studies that have none."""
    records = _records(folder)
    wanted: dict[str, tuple] = {}
    for name, page in _pages_of(records).items():
        first = page.records[0]
        if page.gains:
            wanted[first] = draw_gains, records[first]
        if page.costs and "pooling" in records:
            wanted[name] = draw_costs, records[first], records["pooling"]
    drawn = []
    for name, (draw, *shown) in wanted.items():
        path = folder / f"{name}.png"
        if not path.exists():
            draw(path, *shown)
            drawn.append(path)
    return drawn


def _records(folder):
    return {
        path.stem: read_record(path) for path in sorted(folder.glob("*.json"))
    }


def _pages_of(records):
    """Pages with the records that are there, and one for each other record."""
    found = {}
    for name, page in PAGES.items():
        there = tuple(one for one in page.records if one in records)
        if there:
            found[name] = replace(page, records=there)
    grouped = {one for page in found.values() for one in page.records}
    return found | {
        name: Page(record["title"], (name,))
        for name, record in records.items()
        if name not in grouped
    }


def _section(name, record, folder):
    tables = [Table(**one) for one in record.get("tables", ())]
    about, before = record["about"], ""
    if record["kind"] == "study":
        tables = [study_table(record), *tables]
        about = f"{about} {_about_study(record)}".strip()
        before = f"{record['title']}: "
    command = record.get("command")
    parts = [f"    {command}" if command else "", about]
    for table in tables:
        parts += [f"### {table.title}" if table.title else "", table.markdown()]
    for drawn in (name, f"{name}_hulls"):
        if (folder / f"{drawn}.png").exists():
            parts.append(f"![{drawn.replace('_', ' ')}]({drawn}.png)")
    return [*parts, _settings(record), before + _environment(record)]


def _about_study(record):
    steps = sorted({row["steps"] for row in record["rows"]} - {0})
    words = " or ".join(f"{one:,}" for one in steps)
    return (
        f"{words} steps; the weights with the best validation MAP@R are scored "
        "once on the test classes. Each row's learning rate is the best of its "
        "grid on the validation classes. Percentages, mean ± standard "
        "deviation; differences are paired, query by query, with 95 % "
        f"intervals over {record.get('over', 'classes')} and models."
    )


def _settings(record):
    words = ", ".join(f"{k} {v}" for k, v in record.get("settings", {}).items())
    text = f"Settings: {words}." if words else ""
    if "device" in record:
        text += f" Measured on {record['device']}"
        if record.get("load") is not None:
            text += f", load {record['load']:.1f}"
        text += "."
    return text.strip()


def _environment(record):
    found = record["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in found["packages"].items())
    commits = record.get("commits") or [found.get("commit") or "unknown"]
    words = ", ".join(one[:12] for one in commits)
    return f"Python {found['python']}, {packages}; commit {words}."


def _index(titles, records):
    parts = [MADE, "# Results", summary(records), method_table(records)]
    lines = [f"- [{title}]({name}.md)" for name, title in titles.items()]
    parts += ["## Pages", "\n".join(lines)]
    return "\n\n".join(filter(None, parts)) + "\n"


def summary(records: Mapping[str, Mapping[str, Any]]) -> str:
    """`summary.md` with its numbers, nothing where a record is missing.

    `{study row method}` is the gain over average pooling, a fourth word the
    other method; `{score study row method}` is MAP@R; `{head pooling}` and
    `{step method}` are costs.
    """

    def number(match):
        words = match[1].split()
        if words[0] == "head":
            return f"{head_ratios(records['pooling'])[words[1]]:.1f}"
        if words[0] == "step":
            (table,) = records["step_share"]["tables"]
            shares = {row[0]: float(row[2]) for row in table["rows"]}
            return f"{shares[words[1]]:.2g}"
        is_score = words[0] == "score"
        name, row, method, other = [*words[is_score:], "gap"][:4]
        found = {(r["row"], r["method"]): r for r in records[name]["rows"]}
        if is_score:
            mean = found[row, method]["scores"]["map_at_r"]["mean"]
            return f"{100 * mean:.1f}"
        return interval(found[row, method]["differences"][other])

    try:
        text = SUMMARY.read_text(encoding="utf-8").strip()
        return re.sub(r"\{([^}]+)\}", number, text)
    except KeyError:
        return ""


def head_ratios(costs: Mapping[str, Any]) -> dict[str, float]:
    """Pooling -> time of its head as a multiple of a 1 x 1 convolution's."""
    table = next(t for t in costs["tables"] if t["title"].startswith("head"))
    column = table["headings"].index("ratio")
    return {row[0]: float(row[column]) for row in table["rows"]}


def method_table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of methods: a row for each data set and method of `DATA`."""
    rows = []
    for name, ending, page, title in DATA:
        found = {
            (row["row"], row["method"]): row["differences"].get(
                "untrained" if row["method"] == "gap" else "gap"
            )
            for row in records.get(name, {}).get("rows", ())
        }
        for method, words in METHODS.items():
            cells = [
                _gain(found.get((f"{loss}{ending}", method))) for loss in LOSSES
            ]
            if any(cells):
                rows.append([f"[{title}]({page}.md)", words, *cells])
    headings = ("data", "method", *LOSSES.values())
    table = Table(headings, rows, 2).markdown()
    return f"{METHOD_TABLE}\n\n{table}" if rows else ""


def _gain(found):
    if not found:
        return ""
    text = interval(found)
    return f"**{text}**" if found["low"] > 0 or found["high"] < 0 else text


def draw_gains(path: Path, record: Mapping[str, Any]) -> None:
    """Draws every cell's gain over average pooling, with its interval."""
    rows = [row for row in record["rows"] if row["differences"].get("gap")]
    gains = [row["differences"]["gap"] for row in rows]
    is_one = len({row["method"] for row in rows}) == 1
    names = [
        row["row"] if is_one else f"{row['row']}, {row['method']}"
        for row in rows
    ]
    size = (7.0, 0.8 + 0.22 * len(rows))
    with picture(path, 1, 1, figsize=size) as axes:
        axis = axes[0, 0]
        middle = [100 * one["difference"] for one in gains]
        axis.barh(names, middle, xerr=_ends(gains), color="0.7", ecolor="0.2")
        axis.axvline(0.0, color="0.2", lw=1)
        axis.invert_yaxis()
        axis.margins(y=0.01)
        axis.set_xlabel("gain over average pooling, points of MAP@R")


def draw_costs(
    path: Path, study: Mapping[str, Any], costs: Mapping[str, Any]
) -> None:
    """Draws each pooling's gain over averaging against the time of its head."""
    ratios = head_ratios(costs)
    found = {
        row["method"]: row["differences"]["gap"]
        for row in study["rows"]
        if row["row"] == "c2"
        and row["method"] in ratios
        and row["differences"].get("gap")
    }
    places = [(ratios[m], 100 * one["difference"]) for m, one in found.items()]
    with picture(path, 1, 1, figsize=(5.5, 5.5)) as axes:
        axis = axes[0, 0]
        for (method, one), (x, y) in zip(found.items(), places, strict=True):
            color = "C1" if "gsp" in method else "0.4"
            ends = _ends([one])
            axis.errorbar(x, [y], ends, fmt="o", lw=1, color=color)
            # The left of two names that would meet goes to the left.
            meets = any(x < a < 1.6 * x and abs(y - b) < 1.5 for a, b in places)
            side = "right" if meets else "left"
            axis.annotate(f"  {method}  ", (x, y), fontsize=8, ha=side)
        axis.axhline(0.0, color="0.6", lw=1)
        axis.set_xscale("log")
        ticks = [0.5, 1, 2, 4, 8, 16]
        axis.set_xticks(ticks, map(str, ticks), minor=False)
        axis.set_xticks([], minor=True)
        axis.set_title(study["title"].partition(":")[0], fontsize=10)
        axis.set_xlabel("time of the head, to a 1 x 1 convolution")
        axis.set_ylabel("gain over averaging, C2, points of MAP@R")


def _ends(differences):
    """How far the ends of intervals are from their middle, in points."""
    return [
        [100 * abs(one["difference"] - one[end]) for one in differences]
        for end in ("low", "high")
    ]


def run_pages(command: PagesCommand) -> None:
    """Adds records and writes the pages, or prints tables."""
    if command.show:
        for source in command.sources:
            print(study_table(study_record(source)).markdown())
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
