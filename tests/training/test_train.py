"""Training from the command line to the scores, on tiny colored noise."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from tests.training.datasets import layouts
from training import evaluate, export, train
from training.datasets import glyphs
from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import named
from training.runs.callbacks import History
from training.runs.raw_baseline import raw_scores
from training.runs.run_directory import RunDirectory
from training.runs.scoring import embed, score
from training.runs.train_run import train_run
from training.runs.verdict import verdict

RECIPE = named("glyphs", pooling="gsp", regularizer="zsr").with_(
    **{"embedding_size": 8, "num_prototypes": 4, "classes_per_batch": 3},
    **{"samples_per_class": 2, "steps": 4, "steps_per_evaluation": 2},
)


def colored(names, samples=4):
    generator = np.random.default_rng(len(names))
    labels = np.repeat(np.arange(len(names)), samples)
    colors = generator.integers(0, 200, (len(names), 1, 1, 3))
    noise = generator.integers(0, 50, (len(labels), 16, 16, 3))
    return ImageSet(labels, names, (colors[labels] + noise).astype("uint8"))


TRAIN, TEST, VALIDATION = map(colored, ("abcde", "xyz", "mno"))
SPLITS = RetrievalSplits("colors", TRAIN, TEST, validation=VALIDATION)


def history_of(run):
    """The history without wall times."""
    return [
        {k: v for k, v in line.items() if k != "seconds"}
        for line in run.read_history()
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = RunDirectory(tmp_path_factory.mktemp("runs") / "whole")
    train_run(RECIPE, SPLITS, run)
    return run


@pytest.fixture
def colors_as_glyphs(monkeypatch):
    monkeypatch.setattr(glyphs, "load", lambda **_: SPLITS)


def test_a_run_leaves_everything_in_its_directory(finished):
    names = {path.name for path in finished.path.iterdir()}
    written = (
        ".training.lock settings.json history.jsonl scores.json encoder.keras "
        "checkpoint tensorboard classes.json"
    )
    assert names == {*written.split()}
    assert [line["step"] for line in finished.read_history()] == [0, 2, 4]
    assert list(finished.tensorboard.iterdir())
    assert finished.read_recipe() == RECIPE
    # It names what it gained over the raw features.
    scores, (first, *_) = finished.read_scores(), finished.read_history()
    assert scores["num_queries"] == 12
    raw = raw_scores(RECIPE, SPLITS)
    assert scores["raw"] == {k: v for k, v in raw.items() if k != "queries"}
    assert len(raw["queries"]["whitened"]) == 12
    assert scores["untrained"]["val_map_at_r"] == first["val_map_at_r"]
    assert scores["verdict"] == verdict(scores)


def test_a_run_that_gained_nothing_ends_with_the_command_of_what_is_better(
    finished, colors_as_glyphs, tmp_path, capsys
):
    scores = finished.read_scores()
    for gain in (0.1, -0.1):
        scores["gain"] |= {"low": gain, "high": gain, "against": "raw features"}
        scores["kept_step"], scores["raw"]["best"] = 2, "GeM 5"
        for name, value in (("GeM 5", 0.9), ("whitened", 0.1)):
            scores["raw"][name]["val_map_at_r"] = value
        printed = train.run_report(finished, scores)
        assert ("export them:" in printed) == (gain < 0)
    *_, command, export = map(shlex.split, printed.splitlines())
    assert export[3] == f"{finished.path}-untrained"
    command[command.index("--runs") + 1] = str(tmp_path)
    train.main(command[3:])
    pooling = evaluate.load_encoder(tmp_path / "whole-untrained").get_layer(
        "pooling"
    )
    assert pooling.power == 5.0
    assert "Nothing was trained." in capsys.readouterr().out


def test_the_saved_encoder_has_the_best_weights_and_their_scores(finished):
    encoder = evaluate.load_encoder(finished)
    scores = score(encoder, RECIPE, SPLITS.scored())
    assert len(scores.pop("queries")) == 12
    saved = finished.read_scores()
    assert scores == pytest.approx({k: saved[k] for k in scores}, abs=1e-6)
    sides = {"test": SPLITS.validation}
    validated = score(encoder, RECIPE, sides)["map_at_r"]
    best = max(line["val_map_at_r"] for line in finished.read_history())
    assert validated == pytest.approx(best, abs=1e-6)
    # Queries search their gallery.
    halves = [SPLITS.test.subset(np.arange(s, 12, 2)) for s in (0, 1)]
    sides = dict(zip(("query", "gallery"), halves, strict=True))
    assert score(encoder, RECIPE, sides)["num_queries"] == 6


@pytest.mark.slow
def test_a_killed_run_resumes_exactly(finished, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "killed")

    def killed(self, batch, logs=None):
        """Stops a run in the middle of its second evaluation."""
        if int(self.model.optimizer.iterations) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(History, "on_train_batch_end", killed)
        train_run(RECIPE, SPLITS, run)
    assert not run.is_finished
    # Also when the clock was set back.
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert train_run(RECIPE, SPLITS, run) == finished.read_scores()
    assert history_of(run) == history_of(finished)


@pytest.mark.slow
def test_a_run_is_evaluated_on_any_split(
    finished, colors_as_glyphs, tmp_path, capsys
):
    run, output = str(finished.path), tmp_path / "scores.json"
    evaluate.main([run, "--output", str(output)])
    scores, saved = json.loads(output.read_text()), finished.read_scores()
    assert scores == pytest.approx({k: saved[k] for k in scores}, abs=1e-6)
    assert "map_at_r" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="`output` must be new"):
        evaluate.main([run, "--output", str(output)])
    output.unlink()
    evaluate.main([run, "--split", "all", "--output", str(output)])
    everything = json.loads(output.read_text())
    counts = sum(map(len, SPLITS.sides().values()))
    assert everything["num_queries"] + everything["num_dropped"] == counts


def test_help_shows_options_without_keras():
    code = """import sys
from training import train
try:
    train.main(['folder', '--help'])
finally:
    assert not {"keras", "tensorflow"} & sys.modules.keys()"""
    command, folder = [sys.executable, "-c", code], Path(__file__).parents[2]
    printed = subprocess.check_output(command, text=True, cwd=folder)
    assert "--loss-arguments" in printed and "--ccp-arguments" in printed
    assert "--validation-fold" not in printed


@pytest.mark.slow
def test_untrained_features_are_whitened_by_all_training_images(tmp_path):
    plain, run = (RunDirectory(tmp_path / name) for name in "ab")
    recipe = RECIPE.with_(steps=0, regularizer="none", embedding_size=4)
    train_run(recipe, SPLITS, plain)
    train_run(recipe.with_(projection_start="learned"), SPLITS, run)
    encoder, images = evaluate.load_encoder(plain), SPLITS.train
    shrinkage = run.read_scores()["raw"]["whitened"]["shrinkage"]
    whitening = gsp.layers.Whitening(4, shrinkage=shrinkage)
    whitening.adapt(embed(encoder, recipe, images), images.labels)
    expected = whitening(embed(encoder, recipe, SPLITS.test))
    found = embed(evaluate.load_encoder(run), recipe, SPLITS.test)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.slow
def test_a_network_is_adapted_and_its_export_is_certified(
    colors_as_glyphs, tmp_path
):
    recipe = RECIPE.with_(regularizer="none", lora_rank=1, matryoshka_size=4)
    run = RunDirectory(tmp_path / "run")
    sizes = train_run(recipe, SPLITS, run)
    saved = evaluate.load_encoder(run)
    assert not any("lora" in weight.path for weight in saved.weights)
    scores = score(saved, recipe, SPLITS.scored())
    assert scores["map_at_r"] == pytest.approx(sizes["map_at_r"], abs=0.1)
    assert {"map_at_r_4", "precision_at_1_4"} <= sizes.keys()
    assert "val_map_at_r_4" in run.read_history()[-1]
    folder = tmp_path / "export"
    options = ["--truncate-to", "4", "--index", "none", "--output", str(folder)]
    export.main([str(run.path), *options])
    facts = json.loads((folder / "metadata.json").read_text())
    assert facts["embedding_size"] == 4
    assert facts["scores"]["map_at_r_4"] == sizes["map_at_r_4"]


@pytest.mark.slow
def test_the_first_command_trains_from_imagenet_weights(
    tmp_path, cache, monkeypatch, capsys
):
    names = [f"class{i}" for i in range(16)]
    folder = layouts.folder(tmp_path / "birds", names, images=3)
    build = keras.applications.MobileNetV2
    asked = []

    def built(*, weights="imagenet", **arguments):
        asked.append(weights)
        return build(weights=None, **arguments)

    monkeypatch.setattr(keras.applications, "MobileNetV2", built)
    where = ["--data-dir", str(folder), "--runs", str(tmp_path)]
    few = "--steps 2 --steps-per-evaluation 2 --samples-per-class 2"
    train.main(["folder", *where, "--pooling", "gsp", *few.split()])
    assert set(asked) == {"imagenet"}
    (run,) = tmp_path.glob("folder,*")
    assert len(run.name) <= 40
    printed = capsys.readouterr().out
    assert "python -m training.export" in printed
