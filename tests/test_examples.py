"""Every Python example of docstrings, README and guides runs as printed."""

import ast
import os
import pathlib
import re
import textwrap

import keras
import numpy as np
import pytest

import keras_gsp as gsp

ROOT = pathlib.Path(__file__).parents[1]
FENCE = re.compile(r"^[ \t]*```python\n(.*?)^[ \t]*```", re.DOTALL | re.M)
PAGES = ("README.md", *sorted((ROOT / "docs").rglob("*.md")))
# Examples that need an engine.
ENGINES = {"scann": "scann", "milvus": "milvus_lite", "faiss": "faiss"}


def blocks(text):
    return [textwrap.dedent(code) for code in FENCE.findall(text or "")]


def docstring_examples():
    """Where -> code of one docstring; later blocks continue earlier ones."""
    for path in sorted((ROOT / "keras_gsp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            kinds = ast.ClassDef, ast.FunctionDef, ast.Module
            if isinstance(node, kinds) and (
                found := blocks(ast.get_docstring(node))
            ):
                name = getattr(node, "name", "module")
                yield f"{path.stem}.{name}", "\n".join(found)


def page_examples():
    """Page -> code of one page; later blocks continue earlier ones."""
    for page in PAGES:
        if found := blocks((ROOT / page).read_text()):
            yield str((ROOT / page).relative_to(ROOT)), "\n".join(found)


def run(where, code, folder, **names):
    for word, module in ENGINES.items():
        if word in code.lower():
            pytest.importorskip(module)
    former = os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(code, where, "exec"), {"__name__": "example"} | names)
    finally:
        os.chdir(former)


DOCSTRINGS = dict(docstring_examples())
EXAMPLES = dict(page_examples())


def test_docstring_examples_run(subtests, tmp_path):
    assert DOCSTRINGS
    for where, code in DOCSTRINGS.items():
        with subtests.test(where):
            run(where, code, tmp_path, keras=keras, np=np, gsp=gsp)


@pytest.mark.parametrize("page", EXAMPLES)
def test_page_examples_run(page, tmp_path):
    assert "import keras_gsp" in EXAMPLES[page]
    run(page, EXAMPLES[page], tmp_path)


def test_public_names_are_documented():
    for room in gsp.__all__:
        for name in getattr(getattr(gsp, room), "__all__", ()):
            assert getattr(getattr(gsp, room), name).__doc__, f"{room}.{name}"


COMMAND = re.compile(
    r"-m (training(?:\.[a-z_]+)+)(?![\w.])((?:[^\n`]|\\\\\n)*)"
)
OPTION = re.compile(r"(?<=\s)--[a-z][a-z-]*")


def page_commands():
    """Command -> options that pages show it with."""
    found = {}
    for page in (*PAGES, "training/README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text().replace("\\\n", " ")
        for module, rest in COMMAND.findall(text):
            options = OPTION.findall(rest.split("|")[0])
            found.setdefault(module, set()).update(options)
    return found


def test_commands_on_pages_exist_and_know_their_options():
    """Reads sources: starting every command would take minutes."""
    settings = "".join(
        path.read_text()
        for folder in ("training/recipes", "keras_gsp/losses")
        for path in (ROOT / folder).rglob("*.py")
    )
    for module, options in page_commands().items():
        path = ROOT.joinpath(*module.split("."))
        source = (
            path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        )
        assert source.exists(), f"{module} is on a page and does not exist"
        known = source.read_text() + settings
        for option in options:
            # A flag that is on by default is switched off by --no-NAME.
            field = option[2:].removeprefix("no-").replace("-", "_")
            assert re.search(rf"\b{field}\b", known), f"{module}: {option}"
