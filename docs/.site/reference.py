"""Every public name of a room stands on its page, without a list to keep."""

import ast
import re
from pathlib import Path

_MARK = re.compile(r"^::: every public name of (?P<room>[\w.]+)$", re.MULTILINE)


def public_names(room: str) -> list[str]:
    """Returns `__all__` of a package of ours, read without importing it."""
    path = Path(*room.split(".")) / "__init__.py"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError(f"`{room}` must have an `__all__`. Received: none.")


def on_page_markdown(markdown, **kwargs):
    """Writes the names out before mkdocstrings looks them up."""
    del kwargs

    def listed(match):
        room = match["room"]
        return "\n\n".join(f"::: {room}.{name}" for name in public_names(room))

    return _MARK.sub(listed, markdown)
