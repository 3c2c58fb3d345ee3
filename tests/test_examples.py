"""Every Python example of docstrings, README and guides runs as printed.

Docstrings have `np`, `keras` and `gsp` without an import.
"""

import ast
import os
import pathlib
import re
import textwrap

import h5py
import keras
import numpy as np
import pytest
from keras.src.legacy.saving import legacy_h5_format
from PIL import Image

import keras_gsp

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
    """Page -> code of one page; later blocks continue earlier ones.

    Where another backend runs, blocks that import TensorFlow are left out.
    """
    has_tensorflow = keras.backend.backend() == "tensorflow"
    for page in PAGES:
        if code := [
            block
            for block in blocks((ROOT / page).read_text())
            if has_tensorflow or "import tensorflow" not in block
        ]:
            yield str((ROOT / page).relative_to(ROOT)), "\n".join(code)


def run(where, code, folder, **names):
    for word, module in ENGINES.items():
        if word in code.lower():
            pytest.importorskip(module)
    former = os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(code, where, "exec"), {"__name__": "example", **names})
    finally:
        os.chdir(former)


DOCSTRINGS = dict(docstring_examples())
EXAMPLES = dict(page_examples())


@pytest.mark.parametrize("where", DOCSTRINGS)
def test_docstring_examples_run(where, tmp_path):
    run(where, DOCSTRINGS[where], tmp_path, np=np, keras=keras, gsp=keras_gsp)


ON_TORCH = "docs/guides/from-pytorch.md"
# On a reader's own photographs.
OWN_IMAGES = {
    "README.md",
    "docs/guides/own-data.md",
    "docs/guides/flat-folder.md",
}


@pytest.mark.slow
@pytest.mark.parametrize("page", EXAMPLES)
def test_page_examples_run(page, tmp_path, request):
    assert EXAMPLES[page].startswith(("import ", "from "))
    code = EXAMPLES[page]
    if page == ON_TORCH and keras.backend.backend() != "torch":
        pytest.skip("needs KERAS_BACKEND=torch")
    if page == ON_TORCH:
        request.getfixturevalue("torchvision")
    if page in OWN_IMAGES:
        request.getfixturevalue("photos")
        request.getfixturevalue("imagenet_file")
    if page == "README.md":
        (tmp_path / "photos" / "b" / "damaged.jpg").unlink()
    run(page, code, tmp_path)


@pytest.fixture
def torchvision():
    """Loads beside another build of PyTorch too, without its operators.

    A CPU's build of PyTorch often meets a GPU's of torchvision.
    """
    torch = pytest.importorskip("torch")
    try:
        import torchvision
    except RuntimeError:
        operators = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor a, Tensor b, float c) -> Tensor")
        import torchvision  # noqa: F401

        yield operators  # as long as they are kept
    else:
        yield


@pytest.fixture
def photos(tmp_path, request):
    """A reader's folder: 16 classes, and files that are no images."""
    rng = np.random.default_rng(0)
    # README's projection needs more than 128 to learn from.
    count = 17 if "README" in request.node.name else 4
    for name in "abcdefghijklmnop":
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        color = rng.integers(0, 200, 3)
        for number in range(count):
            pixels = color + rng.integers(0, 50, (60, 80, 3))
            picture = Image.fromarray(pixels.astype("uint8"))
            picture.save(folder / f"{number}.jpg")
    (tmp_path / "photos" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "photos" / "b" / "damaged.jpg").write_bytes(b"no image")


@pytest.fixture
def imagenet_file(tmp_path, monkeypatch):
    """Random weights where Keras keeps those that it has downloaded.

    They are of a narrow network, a quarter of the work.
    """
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(tmp_path))
    name = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_0.35_224_no_top.h5"
    (tmp_path / "models").mkdir()
    application = keras.applications.MobileNetV2
    shape, _, *others = application.__defaults__
    narrow = shape, 0.35, *others
    monkeypatch.setattr(application, "__defaults__", narrow)
    network = application((224, 224, 3), include_top=False, weights=None)
    # Averages of these pixels, or all features would be nearly equal.
    for layer in network.layers:
        layer.momentum = 0.0
    colors = np.random.default_rng(0).uniform(-1, 1, (16, 1, 1, 3))
    network(colors * np.ones((16, 224, 224, 3)), training=True)
    with h5py.File(tmp_path / "models" / name, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, network)


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
        for folder in (
            *("training/recipes", "training/research/experiments"),
            "keras_gsp/losses",
        )
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
