"""Commands run from photographs to embeddings on every backend."""

import importlib
import json

import keras
import pytest

from tests.training.datasets import layouts
from training.recipes.glyph_network import glyph_network


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_commands_train_score_advise_and_embed(
    tmp_path, cache, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    layouts.folder(tmp_path / "photos", [f"class {i}" for i in range(12)], 4)
    network = glyph_network((24, 24, 3), "glyph-cnn")
    network.save_weights("glyph.weights.h5")
    small = "--backbone glyph-cnn --backbone-weights glyph.weights.h5"
    small += " --data-dir photos --crop-size 24"
    batch = "--classes-per-batch 3 --samples-per-class 2 --steps 2"
    for line in (
        "doctor --data-dir photos --review flat.html",
        f"train folder --name a {small} {batch} --steps-per-evaluation 1",
        "doctor --data-dir photos --encoder runs/a --review review.html",
        "evaluate runs/a",
        "report runs/a",
        "embed runs/a --images photos --output embeddings",
        f"advise {small} --minutes 0.001",
    ):
        name, *options = line.split()
        if line.endswith("flat.html"):
            options[1] = "photos/class 0"
        importlib.import_module(f"training.{name}").main(options)
    printed = capsys.readouterr().out
    assert "24 images of unseen classes" in printed
    for name in ("report", "evaluate", "export"):
        assert f"  python -m training.{name} runs/a" in printed
    scores = json.loads((tmp_path / "runs/a/scores.json").read_text())
    assert scores["num_queries"] == 24
    for path in "flat.html review.html runs/a/report.html".split():
        assert (tmp_path / path).is_file()
    assert list((tmp_path / "embeddings").glob("*.parquet"))
    assert "no time" in (tmp_path / "runs/advice/advice.md").read_text()
    export = importlib.import_module("training.export")
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(SystemExit, match=r"keras-gsp\[tf\]"):
            export.main(["runs/a"])
        return
    export.main(["runs/a"])
    search = importlib.import_module("training.search")
    search.main(["saved_models/a", "photos/class 0/0000.jpg"])
