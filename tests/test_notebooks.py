"""The notebooks run from top to bottom, in a small form."""

import importlib.util
import json
import pathlib

import keras
import numpy as np
import pytest
from PIL import Image

from training.recipes import glyph_network

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
# Replace settings of the first code cell.
SMALL = {
    "first_search": {"weights": None, "size": 32},
    "clutter": {"steps": 3, "num_letters": 20, "num_unseen": 10},
    "train_to_serve": {"weights": None, "size": 32, "steps": 2},
}


def read(name):
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))


def test_every_notebook_has_a_small_form():
    assert {file.stem for file in NOTEBOOKS.glob("*.ipynb")} == set(SMALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve classes, one with a damaged file; caches of their own."""
    rng = np.random.default_rng(0)
    for name in "abcdefghijkl":
        (tmp_path / "photos" / name).mkdir(parents=True)
        color = rng.integers(0, 200, 3)
        for number in range(12):
            pixels = color + rng.integers(0, 50, (70, 90, 3))
            file = tmp_path / "photos" / name / f"{number}.jpg"
            Image.fromarray(pixels.astype("uint8")).save(file)
    (tmp_path / "photos" / "a" / "damaged.jpg").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(glyph_network, "EPOCHS", 1)
    # Random weights of the real one give every image the same embedding.
    monkeypatch.setattr(keras.applications, "MobileNetV2", small_backbone)


def small_backbone(input_shape, include_top, weights):
    convolution = keras.layers.Conv2D(16, 4, strides=4)
    return keras.Sequential([keras.Input(input_shape), convolution])


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_cells_run_in_order(name, folder, capsys, recwarn):
    cells = [c for c in read(name)["cells"] if c["cell_type"] == "code"]
    space = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        exec(
            compile("".join(cell["source"]), f"{name} {number}", "exec"), space
        )
        if number == 0:
            assert set(SMALL[name]) <= set(space)
            space |= SMALL[name]
    printed = capsys.readouterr().out
    if name == "first_search":
        assert "144 images of 12" in printed
        assert any("damaged.jpg" in str(w.message) for w in recwarn)
        # The query is in the gallery.
        assert "0.00 a" in printed
    if name == "clutter":
        share = printed.rsplit("GSP ", 1)[1]
        assert 0 < float(share) < 1
    if name == "train_to_serve":
        assert "8 2 2 classes" in printed
        assert "['ok', 'unreadable" in printed


def test_a_notebook_becomes_a_page():
    path = ROOT / "docs" / "notebook_pages.py"
    spec = importlib.util.spec_from_file_location("site_notebooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    output = {"output_type": "stream", "text": ["4\n"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[b](b.ipynb)"]},
        {"cell_type": "code", "source": ["2 + 2"], "outputs": [output]},
    ]
    page = module.markdown({"cells": cells}, "a.ipynb")
    assert page.startswith(
        "# Title\n[b](b.md)\n\n[Download this notebook](a.ipynb)"
    )
    assert "`````py\n2 + 2\n`````\n\n`````text\n4\n`````" in page
