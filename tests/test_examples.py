"""Every Python example of the docstrings and of the README runs."""

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
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "training/README.md",
    *sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")
    ),
)
# Pages that need an engine which is no part of the package.
ENGINES = {"docs/guides/milvus.md": ("pymilvus", "milvus_lite")}


def docstring_examples():
    """Yields (where, code) for every fenced example in the package."""
    for path in sorted((ROOT / "keras_gsp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            kinds = ast.ClassDef, ast.FunctionDef, ast.Module
            text = isinstance(node, kinds) and ast.get_docstring(node)
            for number, code in enumerate(FENCE.findall(text or "")):
                name = getattr(node, "name", "module")
                yield f"{path.stem}.{name}.{number}", textwrap.dedent(code)


def page_examples():
    """Yields (page, code): the examples of one page, run in their order."""
    for page in PAGES:
        path = ROOT / page
        if path.exists():
            found = FENCE.findall(path.read_text())
            yield page, "\n".join(textwrap.dedent(code) for code in found)


def run(where, code, folder):
    former = os.getcwd()
    os.chdir(folder)
    try:
        names = {"keras": keras, "np": np, "gsp": gsp, "__name__": "example"}
        exec(compile(code, where, "exec"), names)
    finally:
        os.chdir(former)


EXAMPLES = dict(docstring_examples())


@pytest.mark.parametrize("where", EXAMPLES)
def test_docstring_example_runs(where, tmp_path):
    if "scann" in EXAMPLES[where].lower():
        pytest.importorskip("scann")
    assert EXAMPLES[where].strip()
    run(where, EXAMPLES[where], tmp_path)


@pytest.mark.parametrize(("page", "code"), list(page_examples()))
def test_page_examples_run(page, code, tmp_path):
    for engine in ENGINES.get(page, ()):
        pytest.importorskip(engine)
    run(page, code, tmp_path)
    assert page in PAGES


PUBLIC = [
    (room, name)
    for room in gsp.__all__
    for name in getattr(getattr(gsp, room), "__all__", ())
]


@pytest.mark.parametrize(("room", "name"), PUBLIC)
def test_public_names_are_documented(room, name):
    thing = getattr(getattr(gsp, room), name)
    text = thing.__doc__ or ""
    first = text.strip().splitlines()[0] if text.strip() else ""
    assert first.endswith("."), f"{room}.{name}: {first!r}"


COMMAND = re.compile(
    r"-m (training(?:\.[a-z_]+)+)(?![\w.])((?:[^\n`]|\\\\\n)*)"
)
OPTION = re.compile(r"(?<=\s)--[a-z][a-z-]*")


def page_commands():
    """Command -> options that pages show it with."""
    found = {}
    for page in PAGES:
        text = (ROOT / page).read_text().replace("\\\n", " ")
        for module, rest in COMMAND.findall(text):
            options = OPTION.findall(rest.split("|")[0])
            found.setdefault(module, set()).update(options)
    return sorted(
        (module, sorted(options)) for module, options in found.items()
    )


@pytest.mark.parametrize(("module", "options"), page_commands())
def test_commands_on_pages_exist_and_know_their_options(module, options):
    """Reads sources: starting every command would take minutes."""
    path = ROOT.joinpath(*module.split("."))
    source = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    assert source.exists(), f"{module} is on a page and does not exist"
    known = source.read_text()
    if "Recipe" in known or "STUDIES" in known:
        known += (ROOT / "training/recipes/recipe.py").read_text()
    known += "".join(
        path.read_text()
        for path in (ROOT / "training/research/experiments").glob("*.py")
    ) * module.startswith("training.research.experiments")
    for option in options:
        # A flag that is on by default is switched off by --no-NAME.
        field = option[2:].removeprefix("no-").replace("-", "_")
        assert re.search(rf"\b{field}\b", known), f"{module} has no {option}"
