"""Every public name of a room stands on its page, without a list to keep."""

import ast
import re
from pathlib import Path

from markdown import Extension
from markdown.preprocessors import Preprocessor

_MARK = re.compile(r"^::: every public name of (?P<room>[\w.]+)$", re.MULTILINE)


def public_names(room: str) -> list[str]:
    """Returns `__all__` of a package of ours, read without importing it."""
    path = Path(*room.split(".")) / "__init__.py"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    raise ValueError(f"`{room}` must have an `__all__`. Received: none.")


class _Names(Preprocessor):
    """Writes the names out before mkdocstrings looks them up."""

    def run(self, lines):
        def listed(match):
            room = match["room"]
            return "\n\n".join(f"::: {room}.{n}" for n in public_names(room))

        return _MARK.sub(listed, "\n".join(lines)).split("\n")


class ReferenceExtension(Extension):
    """Lists a room's public names, as an extension of Python-Markdown."""

    def extendMarkdown(self, md):
        md.preprocessors.register(_Names(md), "reference", 1000)


def makeExtension(**options):
    return ReferenceExtension(**options)
