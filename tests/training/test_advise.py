"""Advice on a folder of images: what is tried, scored, said and refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.training.datasets import layouts
from training import advise, train
from training.recipes.glyph_network import glyph_network
from training.recipes.recipe import Recipe
from training.research.experiments import advice as evidence
from training.runs import trial
from training.runs.trial import FOLDS, Step

SIZE = 24


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "glyph.weights.h5"
    glyph_network((SIZE, SIZE, 3), "glyph-cnn").save_weights(file)
    return file


def command(folder, weights, num_classes=12, **own):
    names = [f"class {i}" for i in range(num_classes)]
    images = layouts.folder(folder / "images", names, images=4)
    options = {
        "--data-dir": images,
        "--backbones": f"glyph-cnn={weights}",
        "--crop-size": SIZE,
        "--head-steps": 2,
        "--tuning-steps": 2,
        "--output": folder / "advice",
        **own,
    }
    return [str(part) for pair in options.items() for part in pair]


def step(name, *scores):
    """A step with these scores of classes of two queries, in one fold."""
    return Step(
        name,
        Recipe(),
        [np.repeat(np.array(scores, float), 2)],
        [np.repeat(np.arange(len(scores)), 2)],
    )


RAW = step("raw features", 10, 20, 30, 40, 50, 60)
SURE = step("head", 15, 26, 34, 45, 56, 64)
UNSURE = step("LoRA", 40, 6, 60, 32, 80, 50)
RISING = replace(step("LoRA", 16, 26, 33, 46, 54, 67), is_rising=True)
WORSE = step("head", 5, 14, 26, 35, 44, 56)
LOW = step("raw features", 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("steps", "best", "says"),
    [
        ([RAW, WORSE], RAW, "Do not train"),
        ([RAW, SURE], SURE, "Train: head"),
        ([RAW, SURE, UNSURE], UNSURE, "cannot tell it for sure from the cheap"),
        ([RAW, SURE, RISING], RISING, "Scores still rose at the end of: LoRA"),
        ([RAW, SURE, replace(RISING, is_rising=False)], SURE, "Train: head"),
        ([LOW], LOW, "Undecided: MAP@R is 3.5 % at most"),
    ],
    ids=["worse", "sure", "unsure", "rising", "level", "low"],
)
def test_a_step_must_gain_what_is_worth_it_or_rise(steps, best, says, tmp_path):
    sizes = {"head_steps": 4, "tuning_steps": 4}
    tried = trial.Trial([], tmp_path, minutes=1.0, worth=1.0, **sizes)
    tried.steps = steps
    assert tried.best is best
    assert says in advise.verdict(steps, best)


@pytest.mark.parametrize(
    ("scores", "longest", "steps", "rises"),
    [
        ({8: 0.30, 16: 0.36, 32: 0.365}, np.inf, 32, False),
        ({8: 0.30, 16: 0.36, 32: 0.34}, np.inf, 16, False),
        ({8: 0.30, 16: 0.36, 32: 0.50}, 16, 16, True),
    ],
    ids=["level", "falls", "longest"],
)
def test_steps_double_while_that_gains(
    scores, longest, steps, rises, tmp_path, monkeypatch
):
    tried = trial.Trial(
        [],
        tmp_path,
        minutes=1.0,
        worth=1.0,
        head_steps=4,
        tuning_steps=8,
        longest=longest,
    )
    first = Recipe.of(steps=8, steps_per_evaluation=2)
    tried.steps = [Step("LoRA", first, is_rising=True)]
    tried._validated[first] = scores[8]
    monkeypatch.setattr(tried, "_predicted", lambda _: 0.0)
    monkeypatch.setattr(
        tried, "_score", lambda step, _: step.scores.append(RAW.scores[0])
    )
    monkeypatch.setattr(
        tried, "_validation_score", lambda recipe: scores[recipe.steps]
    )
    tried.steps[0].scores = RAW.scores
    tried._lengthen()
    assert tried.steps[0].recipe.steps == steps
    assert tried.steps[0].is_rising is rises


def test_a_step_that_diverges_at_every_rate_is_left_out(tmp_path, monkeypatch):
    def diverge(*_, **__):
        raise ValueError("`embeddings` must be finite.")

    sizes = {"head_steps": 4, "tuning_steps": 4}
    tried = trial.Trial([], tmp_path, minutes=1.0, worth=1.0, **sizes)
    tried.steps.append(RAW)
    monkeypatch.setattr(tried, "_run", diverge)
    frozen = {"cache_features": True, "frozen": "all", "augmentation": "none"}
    assert tried._try("head", [Recipe.of(**frozen)], (1e-2, 1e-3)) is None
    assert tried.steps == [RAW]


def test_gain_is_the_paired_difference_of_common_folds():
    longer = step("head", 15, 26, 34, 45, 56, 64)
    longer.scores.append(np.full(4, 99.0))
    longer.classes.append(np.array([10, 10, 11, 11]))
    gain = longer.gain(RAW)
    assert gain["difference"] == pytest.approx(5.0)
    assert gain["low"] < 5 < gain["high"]


@pytest.mark.parametrize("dataset", ["folder", "csv"])
@pytest.mark.parametrize(
    "own",
    [
        {"whitening": "learned", "embedding_size": 64},
        {"steps": 40, "loss": "ms", "pooling": "delf", "learning_rate": 3e-3},
        {"steps": 40, "loss": "proxy-anchor", "pooling": "gsp"}
        | {"cache_features": False, "frozen": "batch-norm", "lora_rank": 8}
        | {"augmentation": "mlrc-area"},
    ],
    ids=["whitening", "head", "LoRA"],
)
def test_the_printed_command_trains_what_was_chosen(dataset, own):
    asked = advise.AdviseCommand(
        "photos", dataset, backbones=("mobilenet-v2@0.35=file.h5",)
    )
    recipe = asked.features()[0].with_(**own)
    words = advise.training_command(asked, recipe)
    _, parsed = train._parse(words[3:])
    for option in (*advise.CHOSEN, *advise.OPTIONS):
        found = getattr(parsed.recipe, option)
        assert found == getattr(recipe, option), option
    assert bool(parsed.recipe.steps) == bool(recipe.steps)


@pytest.mark.slow
def test_every_class_is_held_out_once_and_a_second_call_trains_nothing(
    tmp_path, weights, capsys, monkeypatch
):
    for name in ("POOLINGS", "LOSSES", "HEAD_RATES", "LORA_RATES"):
        monkeypatch.setattr(trial, name, getattr(trial, name)[:1])
    given = command(tmp_path, weights, **{"--minutes": 30, "--worth": 1e-6})
    advise.main(given)
    found = json.loads((tmp_path / "advice" / "advice.json").read_text())
    assert found["classes"] == 12
    assert found["images"] == 48
    names = [row["step"] for row in found["rows"]]
    assert names[:3] == ["raw features", "whitening", "head"]
    assert found["rows"][0]["folds"] == FOLDS
    assert set(found["hints"]) >= {"cutting images closer"}
    assert "training.train" in found["command"]
    runs = {
        file: file.stat().st_mtime_ns
        for file in (tmp_path / "advice" / "runs").glob("*/scores.json")
    }
    advise.main(given)
    assert runs == {
        file: file.stat().st_mtime_ns
        for file in (tmp_path / "advice" / "runs").glob("*/scores.json")
    }
    again = json.loads((tmp_path / "advice" / "advice.json").read_text())
    assert again["rows"] == found["rows"]
    assert "# Should I train?" in capsys.readouterr().out


def test_without_time_only_raw_features_are_scored(tmp_path, weights):
    advise.main(command(tmp_path, weights, **{"--minutes": 1e-6}))
    found = json.loads((tmp_path / "advice" / "advice.json").read_text())
    assert [row["step"] for row in found["rows"]] == ["raw features"]
    assert set(found["skipped"]) >= {"whitening", "head", "LoRA"}
    assert "No time was left to try whitening and head" in found["sentence"]
    assert not found["rows"][0]["note"]


def test_a_folder_with_few_classes_is_refused(tmp_path, weights):
    with pytest.raises(SystemExit, match=r"at least 12 classes.*: 11 classes"):
        advise.main(command(tmp_path, weights, num_classes=11))


def test_the_evidence_judges_what_was_advised_by_what_it_loses():
    def row(advised, lost, is_undecided=False):
        gain = {"difference": lost, "low": lost - 1, "high": lost + 1}
        return {
            "data": "birds",
            "sentence": "",
            "advised": advised,
            "best": "LoRA",
            "ends": {"head": 30.0, "LoRA": 30.0 + lost},
            "lost": gain,
            "is_right": lost <= 1,
            "is_undecided": is_undecided,
            "minutes": 8.0,
            "full_minutes": 20.0,
        }

    rows = [row("LoRA", 0.0), row("head", 2.0), row("head", 2.0, True)]
    judged, _ = evidence.tables(rows)
    column = judged.headings.index("lost")
    found = [(one[1], *one[column : column + 2]) for one in judged.rows]
    assert found == [
        ("LoRA", "0", "yes"),
        ("head", "+2.0 [+1.0, +3.0]", "no"),
        ("", "+2.0 [+1.0, +3.0]", "undecided"),
    ]
