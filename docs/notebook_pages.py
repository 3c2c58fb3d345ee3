"""Turns each notebook into a page of the site: text, code, printed output.

`docs/conf.py` calls it before the site is built.
"""

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).parent / "notebooks"
# A longer fence than any inside a cell.
FENCE = "`````"


def markdown(notebook: dict, name: str) -> str:
    """Returns the page of a notebook; links to notebooks go to their pages."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"{FENCE}py\n{source}\n{FENCE}")
        for output in cell["outputs"]:
            text = "".join(output.get("text", ()))
            parts.append(f"{FENCE}text\n{text.rstrip()}\n{FENCE}")
    parts.insert(1, f"[Download this notebook]({name})")
    return "\n\n".join(parts) + "\n"


def write_pages() -> None:
    """Writes `NAME.md` beside each notebook."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        page = markdown(json.loads(file.read_text("utf-8")), file.name)
        file.with_suffix(".md").write_text(page, "utf-8")
