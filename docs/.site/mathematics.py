"""Formulas of docstrings and pages as MathML: no script, no network.

Docstrings write mathematics as Sphinx does, pages as Markdown does; both end
as MathML, which browsers show by themselves.
"""

import html
import re
import textwrap

import griffe
from latex2mathml.converter import convert
from markdown import Extension
from markdown.postprocessors import Postprocessor

_BLOCK = re.compile(
    r"^(?P<indent>[ ]*)\.\. math::(?P<rest>.*(?:\n(?:(?P=indent)[ ]+\S.*|"
    r"[ ]*$(?=\n(?:[ ]*\n)*(?P=indent)[ ]+\S)))*)",
    re.MULTILINE,
)
_INLINE = re.compile(r":math:`([^`]+)`")
_RENDERED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]'
    r"</(?P=tag)>",
    re.DOTALL,
)


class Mathematics(griffe.Extension):
    """Turns Sphinx's formulas into Markdown's before docstrings are parsed."""

    def on_object(self, *, obj, **kwargs):
        """Rewrites the docstring of an object."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Returns a docstring with `$` and `$$` around its formulas."""

    def block(match):
        indent = match["indent"]
        latex = " ".join(textwrap.dedent(match["rest"]).split())
        return f"{indent}$$\n{indent}{latex}\n{indent}$$\n"

    return _INLINE.sub(r"$\1$", _BLOCK.sub(block, text))


class _MathML(Postprocessor):
    """Replaces the formulas of a page by MathML."""

    def run(self, text):
        return _RENDERED.sub(_as_mathml, text)


def _as_mathml(match):
    display = "block" if match["tag"] == "div" else "inline"
    return convert(html.unescape(match["latex"]), display=display)


class MathMLExtension(Extension):
    """Formulas as MathML, as an extension of Python-Markdown."""

    def extendMarkdown(self, md):
        # After every other: `pymdownx.arithmatex` leaves its own elements.
        md.postprocessors.register(_MathML(md), "mathml", -100)


def makeExtension(**options):
    return MathMLExtension(**options)
