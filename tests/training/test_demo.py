"""The demo's table; its whole flow on colored noise."""

import json

import numpy as np
import pytest

from training import demo
from training.datasets import glyphs
from training.recipes import data, glyph_network
from training.runs.run_directory import RunDirectory, write_json

SMALL = {"train_classes": 20, "validation_classes": 4, "test_classes": 9}
SMALL |= {"train_samples": 6, "test_samples": 4}


def finished(path, test, recipe):
    run = RunDirectory(path)
    run.path.mkdir(parents=True)
    write_json(run.settings, {"recipe": recipe.settings})
    raw = {"best": "maximum", "maximum": dict.fromkeys(demo.MEASURES, 0.05)}
    raw["whitened"] = dict.fromkeys(demo.MEASURES, 0.2)
    write_json(run.scores, dict.fromkeys(demo.MEASURES, test) | {"raw": raw})
    line = {"step": 1, "val_map_at_r": test}
    run.history.write_text(json.dumps(line) + "\n")
    return run


def test_doing_nothing_is_the_first_row_of_the_table_and_the_best_the_last(
    tmp_path,
):
    scores = {"GAP": 0.3, "GSP": 0.1}
    runs = {
        method: finished(tmp_path / method, scores[method], recipe)
        for method, recipe in demo.DemoCommand().recipes.items()
    }
    window = dict.fromkeys(demo.MEASURES, 0.9)
    looks = [demo.Look("GSP's window", None, np.zeros((0, 1)), window)]
    assert demo.results_table(runs, looks).splitlines()[2:] == [
        "| frozen | raw features, not trained | 0.050 | 0.050 |",
        "| frozen | whitened, not trained | 0.200 | 0.200 |",
        "| frozen | GSP | 0.100 | 0.100 |",
        "| frozen | GAP | 0.300 | 0.300 |",
        "| frozen | GSP's window | 0.900 | 0.900 |",
    ]


@pytest.mark.slow
def test_the_demo_trains_exports_searches_and_reports(
    tmp_path, monkeypatch, capfd
):
    splits = glyphs.load(**SMALL)
    monkeypatch.setattr(glyphs, "load", lambda **_: splits)
    monkeypatch.setattr(glyph_network, "EPOCHS", 1)
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    arguments = ["--smoke", "--runs", str(tmp_path)]
    demo.main(arguments)
    printed = capfd.readouterr().out
    folder = tmp_path / "smoke"
    for method in ("GAP", "GSP", "GSP's window, a head"):
        assert f"| frozen | {method} |" in printed
    assert "   1    0.0000" in printed, "each query finds itself first"
    assert f"{folder / 'report.html'}: written" in printed
    assert (folder / "neighbors.png").stat().st_size
    assert (folder / "results.md").read_text() in printed
    before = (folder / "results.md").read_bytes()
    # What follows the trainings has been seen.
    monkeypatch.setattr(demo, "export_and_search", lambda *_: None)
    monkeypatch.setattr("training.report.main", lambda *_: None)
    demo.main(arguments)
    assert "finished before, kept" in capfd.readouterr().out
    assert (folder / "results.md").read_bytes() == before


def test_runs_of_another_recipe_are_not_taken_for_the_demos(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(data, "check_sources", lambda recipe: None)
    monkeypatch.setattr(data, "load_splits", lambda recipe: None)
    recipe = demo.DemoCommand().recipes["GAP"].with_(seed=9)
    run = finished(tmp_path / "frozen-gap-0", 0.1, recipe)
    with pytest.raises(SystemExit, match="a finished run of another"):
        demo.main(["--runs", str(tmp_path)])
    assert run.read_scores()["map_at_r"] == 0.1
