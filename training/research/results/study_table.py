"""A study's record as Markdown: scores, differences, what was at work."""

from collections.abc import Mapping
from typing import Any

from training.research.results.markdown import markdown_table, spread
from training.research.results.published_results import PublishedResults
from training.research.studies import BASELINES, STUDIES, UNTRAINED

MEASURES = {
    "map_at_r": "MAP@R",
    "precision_at_r": "P@R",
    "precision_at_1": "P@1",
}
PARTS = {
    "single": "{}-D",
    "average": "{}-D, mean of models",
    "concatenated": "{}-D, concatenated",
}
# Of a comparison of poolings, what the papers print of theirs: MAP@R, wherever
# it was measured. Their GSP has its regularizer.
PRINTED = {
    "collage": ("papers, CIFAR collage", "single"),
    "cub": ("papers, CUB", "average"),
}
PRINTED_WORDS = {"gsp": "gsp-zsr"}
ACTIVITY = {
    "ccp_problem": ("problems", "{:.0f}"),
    "memory_fill": ("memory", "{:.0%}"),
    "regularizer_share": ("share", "{:.2g}"),
    "transport_ratio": ("ratio", "{:.2f}"),
}


def study_tables(
    results: Mapping[str, Any], published: PublishedResults | None = None
) -> str:
    """Markdown tables of a study, one for each protocol, percentages.

    Args:
        results: What `study_results` returned, perhaps read from JSON.
        published: What papers print, to stand beside ours.
    """
    baseline = [r for r in results["rows"] if r["method"] == "untrained"]
    found: dict[str, list] = {}
    for row in results["rows"]:
        found.setdefault(row["protocol"], []).append(row)
    # The untrained baseline stands above the table of every protocol.
    if len(found) > 1 and baseline:
        found = {
            protocol: [*baseline, *(r for r in rows if r not in baseline)]
            for protocol, rows in found.items()
            if rows != baseline
        }
    tables = [
        _table(results, rows, published or PublishedResults())
        for rows in found.values()
    ]
    tables += _effects(results.get("effects", {}))
    return "\n\n".join([*tables, *_problems(results["rows"])])


def _problems(rows):
    """A table of how long each problem took, model by model."""
    found = [
        [
            row["row"],
            row["method"],
            "; ".join(
                ", ".join(f"{number:.0f}" for number in steps)
                for steps in row["activity"]["ccp_steps"]
            ),
        ]
        for row in rows
        if row["activity"].get("ccp_scored")
    ]
    if not found:
        return []
    return [
        "Steps of each problem until its set of proxies was exchanged, model "
        "by model; the last is cut off by the end of training:",
        markdown_table(["loss", "method", "steps"], found, num_left=3),
    ]


def _effects(effects):
    """A table of a design's factors: what the upper level adds."""
    if not effects:
        return []
    factors = next(iter(effects.values()))
    rows = [
        [
            name.replace("_", " "),
            " or ".join(f"{level:g}" for level in factors[name]["levels"]),
            *(f"{100 * own[name]['effect']:+.2f}" for own in effects.values()),
        ]
        for name in factors
    ]
    headings = ["factor", "levels", *(f"{loss}, MAP@R" for loss in effects)]
    return [
        "What the upper level of a factor adds, the mean over the others:",
        markdown_table(headings, rows, num_left=2),
    ]


def _table(results, rows, published):
    parts = [part for part in PARTS if any(part in r["parts"] for r in rows)]
    if parts == ["single", "average"] or "concatenated" in parts:
        parts = [part for part in parts if part != "single"]
    sizes = {
        part: next(
            r["parts"][part]["embedding_size"]
            for r in reversed(rows)
            if part in r["parts"]
        )
        for part in parts
    }
    first, *scores = [
        f"{measure} ({PARTS[part].format(sizes[part])})"
        for part in parts
        for measure in MEASURES.values()
    ]
    # What a reader came for stands first.
    headings = ["loss", "method", first]
    headings += ["MAP@R against the baseline", "against its part", *scores]
    headings += ["at work", "models", "minutes each"]
    lines = [_row(results, row, parts, published) for row in rows]
    if _compares_poolings(results):
        headings += [heading for heading, _ in PRINTED.values()]
        for line, row in zip(lines, rows, strict=True):
            line += _printed(row, published)
    # Columns that say nothing here are left out.
    kept = [
        place
        for place in range(len(headings))
        if any(line[place] for line in lines)
    ]
    table = markdown_table(
        [headings[place] for place in kept],
        [[line[place] for place in kept] for line in lines],
        num_left=2,
    )
    return f"{table}\n\n{_note(results, rows)}"


def _row(results, row, parts, published):
    is_untrained = row["method"] == "untrained"
    cells = []
    for part in parts:
        own = row["parts"].get(part)
        if own is None and is_untrained:
            own = row["parts"]["single"]
        for name in MEASURES:
            text = ""
            if own is not None:
                text = spread(own[name], factor=100, digits=2)
            printed = published.find(
                (results["dataset"], row["loss"], row["method"], part, name),
                protocol=row["protocol"],
                backbone=row.get("backbone"),
                embedding_size=own and own["embedding_size"],
            )
            if printed is not None:
                text += f" ({printed.source} {printed.percent:.2f})"
            cells.append(text)
    minutes = row["seconds"] / 60 / max(1, row["models"])
    first, *scores = cells
    return [
        row["row"],
        row["method"],
        first,
        *_differences(row),
        *scores,
        _at_work(row["activity"]),
        str(row["models"]),
        f"{minutes:.1f}",
    ]


def _compares_poolings(results):
    return results.get("study", "").startswith("poolings")


def _printed(row, published):
    """What the papers print of a pooling, a cell for each data set."""
    word = PRINTED_WORDS.get(row["method"], row["method"])
    found = [
        published.find((dataset, row["loss"], word, part, "map_at_r"))
        for dataset, (_, part) in PRINTED.items()
    ]
    return ["" if one is None else f"{one.percent:.2f}" for one in found]


def _differences(row):
    """Against the pair loss (of which: the features), and its own part."""
    found = row["differences"]
    first, *others = [*BASELINES.get(row["method"], ()), None]
    first = first or "untrained"
    second = next((name for name in others if name), row.get("compared"))
    return [
        _difference(first, found.get(first)),
        _difference(second, found.get(second)),
    ]


def _difference(name, found):
    if found is None:
        return ""
    low, middle, high = (
        f"{100 * found[key]:+.2f}" for key in ("low", "difference", "high")
    )
    return f"{name} {middle} [{low}, {high}]"


def _at_work(activity):
    texts = []
    for name, (word, form) in ACTIVITY.items():
        values = activity.get(name)
        if values:
            low, high = (form.format(f(values)) for f in (min, max))
            numbers = low if low == high else f"{low}-{high}"
            texts.append(f"{word} {numbers}")
    scored = activity.get("ccp_scored")
    if scored:
        low, high = min(scored), max(scored)
        numbers = str(low) if low == high else f"{low}-{high}"
        texts.insert(1, f"scored in {numbers}")
    whole = [n for run in activity.get("ccp_steps", ()) for n in run[:-1]]
    if whole:
        low, high = (f"{f(whole):.0f}" for f in (min, max))
        steps = low if low == high else f"{low}-{high}"
        texts.insert(1, f"each of {steps} steps")
    return ", ".join(texts)


def _note(results, rows):
    chosen = {row["selected_on"] for row in rows if "selected_on" in row}
    collections = max(row.get("collections") or 1 for row in rows)
    text = f"{results['title']}, {rows[-1]['protocol']} protocol: "
    if chosen:
        text += f"weights chosen on {' and '.join(sorted(chosen))}; "
    text += "percentages, mean ± standard deviation"
    if collections > 1:
        text += f" over {collections} collections of 4 models"
    if any(row["differences"] for row in rows):
        # Models of the fair protocol differ in the fold that they leave out.
        is_fair = rows[-1]["protocol"] == "fair"
        models = "folds and seeds" if is_fair else "seeds"
        text += (
            f"; differences are paired, query by query, over the {models} that "
            f"both have, with their 95 % interval over classes and {models}"
        )
        trained = [row for row in rows if row["steps"]]
        if collections == 1 and any(row["models"] == 1 for row in trained):
            text += ", for a row with one model over classes alone"
    if any(row["activity"].get("ccp_scored") for row in rows):
        text += (
            "; `problems` are those that CCP began, `scored in` is the one "
            "whose weights were best on the validation classes: 1 is a "
            "single set of proxies"
        )
    if _compares_poolings(results):
        text += (
            "; papers: Table 4 of Generalized Sum Pooling, ResNet20 on "
            "collages and BN-Inception on CUB, their GSP with its "
            "regularizer, to compare orders with"
        )
    best = [row for row in rows if row.get("best")]
    if best:
        text += "; P@1 of the best model: " + ", ".join(
            f"{row['row']} {row['method']} "
            f"{100 * row['best']['precision_at_1']:.2f}"
            for row in best
        )
    if not all(row["is_finished"] for row in rows):
        text += "; not finished: rows with fewer models are going on"
    return text + "."


def missing_cells(results: Mapping[str, Any]) -> str:
    """Names the cells that a study has and its record has not, or nothing."""
    known = STUDIES.get(results["study"])
    there = {(row["row"], row["method"]) for row in results["rows"]}
    there.add(UNTRAINED)
    lacking: dict[str, list[str]] = {}
    for row, method in known.cells if known else ():
        if (row, method) not in there:
            lacking.setdefault(row, []).append(method)
    if not lacking:
        return ""
    words = [f"{row} with {', '.join(m)}" for row, m in lacking.items()]
    return f"Not trained here: {'; '.join(words)}."
