"""The documentation site: `make docs` builds it, warnings are errors.

Pages are Markdown, docstrings Google's. The site loads nothing from the
network: formulas are MathML.
"""

import inspect
import os
import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import notebook_pages  # noqa: E402

project = "keras_gsp"
author = "the keras_gsp authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["notebooks/*.ipynb"]
html_theme = "furo"
html_show_copyright = False
napoleon_use_ivar = True
napoleon_custom_sections = [
    ("Call arguments", "params_style"),
    "Input shape",
    "Output shape",
    "Logs",
]
html_math_renderer = "mathml"
# A single backtick in a docstring is code, as in Markdown.
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "imported-members": True,
    "exclude-members": "build, call, compute_output_shape, compute_output_spec,"
    " compute_mask, get_config, from_config",
}
# Generated tables below a title; pages that only the repository has.
suppress_warnings = ["myst.header", "myst.xref_missing"]
_FENCE = re.compile(r"^( *)```(\w*)$")


def _fences_as_code(app, what, name, obj, options, lines):
    """Writes the fenced examples of docstrings as reStructuredText does."""
    inside, result = False, []
    for line in lines:
        if fence := _FENCE.match(line):
            inside = not inside
            language = fence[2] or "text"
            start = ["", f"{fence[1]}.. code-block:: {language}", ""]
            result += start if inside else [""]
        else:
            result.append(f"    {line}" if inside and line else line)
    lines[:] = result


def _signature(app, what, name, obj, options, signature, returned):
    """Keras wraps `__new__`, which hides the arguments of `__init__`."""
    if what != "class" or obj.__init__ is object.__init__:
        return None
    parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
    parameters = [x.replace(annotation=x.empty) for x in parameters]
    return str(inspect.Signature(parameters)), ""


def _math(display):
    def visit(self, node):
        self.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit, None


def setup(app):
    """Registers what Sphinx lacks; writes the pages of the notebooks."""
    notebook_pages.write_pages()
    app.connect("autodoc-process-docstring", _fences_as_code, priority=100)
    app.connect("autodoc-process-signature", _signature)
    app.add_html_math_renderer("mathml", _math("inline"), _math("block"))
