"""The demo's table and choice; its whole flow on colored noise."""

import json

import pytest

from training import demo
from training.datasets import glyphs
from training.recipes import data, glyph_network
from training.runs.run_directory import RunDirectory, write_json

SMALL = {"train_classes": 20, "validation_classes": 4, "test_classes": 9}
SMALL |= {"train_samples": 6, "test_samples": 4}


def finished(path, test, validation, recipe):
    run = RunDirectory(path)
    run.path.mkdir(parents=True)
    write_json(run.settings, {"recipe": recipe.settings})
    write_json(run.scores, dict.fromkeys(demo.MEASURES, test))
    line = {"step": 1, "val_map_at_r": validation}
    run.history.write_text(json.dumps(line) + "\n")
    return run


@pytest.fixture
def runs(tmp_path):
    found = {}
    for row, (key, recipe) in enumerate(demo.DemoCommand().recipes.items()):
        path, scores = tmp_path / "-".join(map(str, key)), 0.1 + 0.02 * key[2]
        found[key] = finished(path, scores, 1 - 0.1 * row, recipe)
    found[demo.UNTRAINED].history.unlink()
    return found


def test_the_table_has_mean_and_standard_deviation(runs):
    lines = demo.results_table(runs).splitlines()
    assert lines[0].startswith("| network | method | MAP@R | P@1 | P@R |")
    # Three seeds differ by 0.02: mean of the middle one, deviation 0.02.
    untrained = "| pretrained | no training |" + " 0.100 |" * 3 + "  | 1 |"
    assert lines[2] == untrained
    assert lines[3].startswith("| frozen | GAP | " + "0.120 ± 0.020 | " * 3)
    assert lines[6].startswith("| fine-tuned | GAP | 0.100 | ")
    # The best run is chosen on validation letters.
    assert demo.best_run(runs) is runs["frozen", "GAP", 0]


def test_methods_differ_in_method_and_learning_rate_alone():
    recipes = demo.DemoCommand(seeds=2).recipes
    assert ("frozen", "GSP", 1) in recipes and demo.BEST in recipes
    for (stage, _, seed), recipe in recipes.items():
        if stage in demo.STAGES:
            gap = recipes[stage, "GAP", seed]
            same = ("pooling", "regularizer", "learning_rate", *demo.CLUTTER)
            kept = {name: getattr(gap, name) for name in same}
            assert recipe.with_(**kept) == gap


@pytest.mark.slow
def test_the_demo_trains_exports_searches_and_reports(
    tmp_path, monkeypatch, capfd
):
    splits = glyphs.load(**SMALL)
    monkeypatch.setattr(glyphs, "load", lambda **_: splits)
    monkeypatch.setattr(glyph_network, "EPOCHS", 1)
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(demo.webbrowser, "open", opened.append)
    arguments = ["--smoke", "--runs", str(tmp_path)]
    demo.main(arguments)
    printed = capfd.readouterr().out
    folder = tmp_path / "smoke"
    assert (
        "| GSP+ZSR |" in printed and "| GSP's window, not trained |" in printed
    )
    assert "   1    0.0000" in printed, "each query finds itself first"
    page = (folder / "report.html").read_text()
    assert f"{folder / 'report.html'}: the report" in printed
    # Every training has its curve in it.
    for run in ("frozen-gap-0", "frozen-gsp-0", "fine-tuned-gsp-zsr-0"):
        assert f'"run":"{run}"' in page
    assert opened == [], "a smoke run opens no window"
    assert (folder / "results.md").read_text() in printed
    before = (folder / "results.md").read_bytes()
    # What follows the trainings has been seen.
    for name in ("export_and_search", "write_demo_report"):
        monkeypatch.setattr(demo, name, lambda *_: None)
    demo.main(arguments)
    assert "finished before, kept" in capfd.readouterr().out
    assert (folder / "results.md").read_bytes() == before


def test_runs_of_another_recipe_are_not_taken_for_the_demos(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(data, "check_sources", lambda recipe: None)
    monkeypatch.setattr(data, "load_splits", lambda recipe: None)
    recipes = demo.DemoCommand().recipes
    other = recipes["frozen", "GAP", 0].with_(seed=9)
    untrained = tmp_path / "pretrained-no-training-0"
    finished(untrained, 0.1, 0.1, recipes[demo.UNTRAINED])
    run = finished(tmp_path / "frozen-gap-0", 0.1, 0.1, other)
    with pytest.raises(SystemExit, match="a finished run of another"):
        demo.main(["--runs", str(tmp_path)])
    assert run.read_scores()["map_at_r"] == 0.1
