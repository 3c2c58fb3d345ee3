"""The studies in one table: what each method adds to plain average pooling."""

from collections.abc import Mapping
from typing import Any

from training.research.results.markdown import markdown_table

BEGIN = "<!-- Made by `python -m training.research.results`. -->"
END = "<!-- End of what is made. -->"
# Name of the record -> what a reader calls it.
STUDIES = {
    "emoji": "emoji, fine-tuned",
    "emoji-long": "emoji, fine-tuned twice as long",
    "emoji-frozen": "emoji, frozen features",
    "emoji-clutter": "emoji among others, fine-tuned",
    "components": "emoji among others, frozen features",
    "birds50": "birds, fine-tuned",
    "birds50-frozen": "birds, frozen features",
    "omniglot": "Omniglot, from scratch",
    "collage": "CIFAR collage, frozen features",
    "glyphs": "glyphs, from scratch",
}
METHODS = {
    "gap": "averaging, over the untrained network",
    "gsp": "GSP",
    "gsp-zsr": "GSP + ZSR",
    "zsr": "ZSR",
    "xml": "XML",
    "xbm": "memory (XBM)",
    "single": "one set of sampled proxies",
    "ccp": "CCP",
    "ccp-recent": "CCP from recent embeddings",
    "ccp-gsp": "CCP + GSP",
}
LOSSES = {
    "c1": "C1",
    "c2": "C2",
    "ms": "MS",
    "proxy-anchor": "ProxyAnchor",
    "proxy-nca": "ProxyNCA++",
}
BASELINE = "gap"
UNTRAINED = "untrained"


def summary(records: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table of paired differences, points of MAP@R.

    Args:
        records: Name -> record of a study; others are left out.

    Returns:
        A row for each study and method, a column for each loss; the first row
        of a study is what its loss adds to the untrained network; bold where
        the 95 % interval leaves zero out. Cells that lack seeds are left out.
        Empty where there is no study.
    """
    rows = []
    for name, title in STUDIES.items():
        found = {
            (row["row"], row["method"]): row["differences"].get(
                UNTRAINED if row["method"] == BASELINE else BASELINE
            )
            for row in records.get(name, {}).get("rows", ())
            if row["is_finished"]
        }
        for method, words in METHODS.items():
            cells = [_cell(found.get((loss, method))) for loss in LOSSES]
            if any(cells):
                rows.append([f"[{title}]({name}.md)", words, *cells])
    if not rows:
        return ""
    return markdown_table(
        ("data", "method", *LOSSES.values()), rows, num_left=2
    )


def with_summary(text: str, table: str, place: str) -> str:
    """A page with the table between the two marks in it.

    Args:
        text: The page.
        table: What `summary` gave.
        place: Folder of the studies' pages, from the page's own.

    Raises:
        ValueError: the marks are not there once each, in this order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"The page must hold {BEGIN!r}, then {END!r}, once.")
    return f"{before}{BEGIN}\n\n{_moved(table, place)}\n\n{END}{after}"


def _moved(table: str, place: str) -> str:
    return table.replace("](", f"]({place}/")


def _cell(difference: Mapping[str, Any] | None) -> str:
    if not difference:
        return ""
    mean, low, high = (
        100 * difference[name] for name in ("difference", "low", "high")
    )
    text = f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"**{text}**" if low > 0 or high < 0 else text
