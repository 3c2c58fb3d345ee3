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
    scores = {"GAP": 0.1, "GSP": 0.3, "GSP+ZSR": 0.2}
    runs = {
        key: finished(
            tmp_path / "-".join(map(str, key)),
            scores[key[1]] + 0.02 * key[2],
            recipe,
        )
        for key, recipe in demo.DemoCommand(full=True).recipes.items()
    }
    window = dict.fromkeys(demo.MEASURES, 0.9)
    looks = [demo.Look("GSP's window", None, np.zeros((0, 1)), [window])]
    lines = demo.results_table(runs, looks).splitlines()
    assert lines[0] == "| network | method | MAP@R | P@1 | seeds |"
    # Three seeds differ by 0.02: mean of the middle one, deviation 0.02.
    spread = "0.120 ± 0.020 | " * 2
    assert f"| frozen | GAP | {spread}3 |" in lines
    assert lines[-1] == "| frozen | GSP's window |" + " 0.900 |" * 2 + " 1 |"
    nothing = "| frozen | raw features, not trained | 0.050 | 0.050 | 1 |"
    assert lines[2] == nothing and "whitened, not trained" in lines[3]
    means = [float(line.split(" | ")[2].split()[0]) for line in lines[4:]]
    assert means == sorted(means)


def test_methods_differ_in_method_and_learning_rate_alone():
    assert {*demo.DemoCommand().recipes} == {
        ("frozen", "GAP", 0),
        ("frozen", "GSP", 0),
    }
    recipes = demo.DemoCommand(full=True).recipes
    assert ("frozen", "GSP", 2) in recipes and demo.LONGER in recipes
    for (stage, _, seed), recipe in recipes.items():
        if stage in demo.STAGES:
            gap = recipes[stage, "GAP", seed]
            same = ("pooling", "regularizer", "learning_rate", *demo.CLUTTER)
            assert recipe.with_(**{k: getattr(gap, k) for k in same}) == gap


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
    assert f"{folder / 'report.html'}: the report" in printed
    assert (folder / "neighbors.png").stat().st_size
    assert (folder / "results.md").read_text() in printed
    before = (folder / "results.md").read_bytes()
    # What follows the trainings has been seen.
    for name in ("export_and_search", "write_demo_report"):
        monkeypatch.setattr(demo, name, lambda *_: folder)
    demo.main(arguments)
    assert "finished before, kept" in capfd.readouterr().out
    assert (folder / "results.md").read_bytes() == before


def test_runs_of_another_recipe_are_not_taken_for_the_demos(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(data, "check_sources", lambda recipe: None)
    monkeypatch.setattr(data, "load_splits", lambda recipe: None)
    recipe = demo.DemoCommand().recipes["frozen", "GAP", 0].with_(seed=9)
    run = finished(tmp_path / "frozen-gap-0", 0.1, recipe)
    with pytest.raises(SystemExit, match="a finished run of another"):
        demo.main(["--runs", str(tmp_path)])
    assert run.read_scores()["map_at_r"] == 0.1
